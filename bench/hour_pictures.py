"""What bench/hour.py made, as pictures: the curves of all its runs, and a film of its first seed's agents.

`python bench/hour_pictures.py` writes bench/out/hour-curve.png and, where this machine has run the hour to its end,
bench/out/hour-film.webp; with `--replace` both go to docs/images/, so that word is for who ran the published hour.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import figures
import imageio_ffmpeg
from hour import FIRST_SEED, current

from trainer.config.tasknames import MT10
from trainer.showing import canvas

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images" if figures.REPLACES else figures.OWN
#: Of one task in the film: pixels a side; and of the film, pictures a second.
SIDE, RATE = 160, 10
TIMEOUT_S = 600.0


def curves(lines: Sequence[Sequence[str]], out: Path) -> None:
    """Success over the minutes of each run (rows of hour.csv)."""
    points: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for side, seed, _, _, minutes, _, *rates in lines:
        points.setdefault((side, seed), [(0.0, 0.0)]).append((float(minutes), float(rates[-1])))
    picture = canvas.figure(out, 5.0)
    axes = picture.subplots()
    sides = list(dict.fromkeys(side for side, _ in points))
    for (side, seed), curve in points.items():
        is_first = seed == min(its for one, its in points if one == side)
        name = {"label": side} if is_first else {}
        colour = canvas.colour_of(sides.index(side))
        axes.plot(*zip(*curve, strict=True), color=colour, linewidth=2, marker="o", markersize=4, **name)
    canvas.plain(axes)
    canvas.percent(axes.yaxis)
    axes.set_xlabel("minutes of training", fontsize=canvas.LABEL)
    axes.set_ylabel("success, mean of ten tasks", fontsize=canvas.LABEL)
    canvas.legend(picture, axes)
    canvas.save(picture, out, "MT10, 50 goals a task, one line a seed; bench/hour.py")


def film(folder: Path, out: Path) -> None:
    """The films of all tasks in `folder` beside each other, five in a row. Errors: CalledProcessError."""
    films = [word for task in MT10 for word in ("-i", str(folder / f"{task}.mp4"))]
    small = "".join(f"[{n}:v]fps={RATE},scale={SIDE}:{SIDE}[v{n}];" for n in range(len(MT10)))
    places = "|".join(f"{n % 5 * SIDE}_{n // 5 * SIDE}" for n in range(len(MT10)))
    stacked = "".join(f"[v{n}]" for n in range(len(MT10))) + f"xstack=inputs={len(MT10)}:layout={places}"
    words = ["-loop", "0", "-c:v", "libwebp_anim", "-quality", "60", str(out)]
    ffmpeg = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-y"]
    subprocess.run([*ffmpeg, *films, "-filter_complex", small + stacked, *words], check=True, timeout=TIMEOUT_S)


def main() -> None:
    """Both, as far as there is something to draw."""
    _, *rows = figures.read(figures.newest("hour"))
    lines = current(rows)
    IMAGES.mkdir(parents=True, exist_ok=True)
    curves(lines, IMAGES / "hour-curve.png")
    made = figures.OWN / f"hour-{FIRST_SEED}"
    if all((made / f"{task}.mp4").is_file() for task in MT10):
        film(made, IMAGES / "hour-film.webp")


if __name__ == "__main__":
    main()
