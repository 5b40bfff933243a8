"""What all pictures share: colours, axes, and the way to the disk."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from anchorleg.files import write_bytes
from trainer.errors import ConfigError, SaveError

#: A picture is 1200 pixels wide: whole on a laptop's screen, readable in a chat and at half its size.
WIDTH_INCHES, DPI = 12.0, 100
#: Wong 2011 (Nature Methods 8, 441): told apart by colour-blind people too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C564B", "#7F7F7F")
GREY, PALE = "#555555", "#DDDDDD"
TITLE, LABEL, TICK, NOTE = 15, 13, 12, 10.5
FORMATS = (".png", ".svg")
#: Above this a list of names hides the picture.
MAX_LEGEND = 12
#: Letters of `TICK`'s size that fit beside each other in a picture, and what a line's sample takes of them.
_LEGEND_LETTERS, _KEY_LETTERS = 150, 8

mpl.rcParams["text.parse_math"] = False  # the dollars of a run's name are no formula


def new_picture(out: Path, height_inches: float) -> Any:
    """An empty picture that is to become `out`. Errors: ConfigError where its name says neither PNG nor SVG."""
    if out.suffix.lower() not in FORMATS:
        raise ConfigError("plot.out-suffix", out=out, suffixes=" or ".join(FORMATS))
    return Figure(figsize=(WIDTH_INCHES, height_inches), dpi=DPI, layout="constrained")


def save_picture(picture: Any, out: Path, caption: str) -> None:
    """Write it with `caption` below, whole or not at all. Errors: SaveError."""
    picture.supxlabel(caption, fontsize=NOTE, color=GREY, x=0.01, ha="left")
    data = io.BytesIO()
    picture.savefig(data, format=out.suffix.lower().removeprefix("."))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(out, data.getvalue())
    except OSError as error:
        raise SaveError("output.unwritable-file", path=out, why=error.strerror) from None


def colour_of(index: int) -> str:
    """The colour of the run or slot number `index`."""
    return COLOURS[index % len(COLOURS)]


def draw_legend(picture: Any, *axes: Any) -> None:
    """The names of all that `axes` show, above them: long ones hide nothing there. Where there are none, nothing."""
    found = {name: handle for one in axes for handle, name in zip(*one.get_legend_handles_labels(), strict=True)}
    if not found:
        return
    columns = max(1, min(len(found), _LEGEND_LETTERS // (max(map(len, found)) + _KEY_LETTERS)))
    picture.legend(found.values(), found.keys(), loc="outside upper right", ncols=columns, fontsize=TICK, frameon=False)


def style_axes(axes: Any) -> None:
    """Two spines, a pale grid behind the data, ticks that can be read."""
    axes.grid(visible=True, color=PALE, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=TICK)


def percent_axis(axis: Any, ticks: Sequence[float] = (0, 0.2, 0.4, 0.6, 0.8, 1)) -> None:
    """`axis` (axes.xaxis or axes.yaxis) from 0 to 100 %; lines along both ends stay whole."""
    axis.set_ticks(ticks, [f"{tick:.0%}" for tick in ticks])
    setter = axis.axes.set_xlim if axis.axis_name == "x" else axis.axes.set_ylim
    setter(-0.02, 1.02)


def name_rows(axes: Any, names: Sequence[str]) -> None:
    """A row for each name, from the top down."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.7)
    style_axes(axes)
    axes.grid(visible=False, axis="y")


def step_axis(axes: Any, last: float, most: int = 8) -> None:
    """The x axis in environment steps, from 0 to `last`."""
    axes.set_xlim(0, last * 1.01)
    axes.xaxis.set_major_locator(MaxNLocator(most))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: in_short(value)))


def in_short(value: float) -> str:
    """12,000 as 12k, 1,500,000 as 1.5M, 1,234,567 as 1.235M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


def short_task(name: str) -> str:
    """All are of version 3: that need not be said fifty times."""
    return name.removesuffix("-v3")


def draw_curve(axes: Any, step: Any, values: Any, **how: Any) -> None:
    """A curve without its NaNs; a single point is a dot."""
    good = np.isfinite(values)
    lone = {"marker": "o", "markersize": 4} if good.sum() == 1 else {}
    axes.plot(step[good], values[good], **how, **lone)
