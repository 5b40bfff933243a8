"""Tables: docs/benchmarks.md from bench/results/*.csv, and docs/algorithms.md from the code's own words.

`python bench/report.py` writes bench/out/benchmarks.md, with this machine's own figures where there are some (see
bench/figures.py), and bench/out/algorithms.md; `python bench/report.py --replace` writes both pages in docs/. A table
stands between `<!-- NAME -->` and `<!-- end -->`, and nothing else of a page is changed. `make bench` ends with it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import figures

from trainer.config.network import ARCHES, EncoderArch

DOCS = Path(__file__).resolve().parents[1] / "docs"
PLACE = re.compile(r"<!-- (\w+) -->\n.*?<!-- end -->", re.DOTALL)
#: Figures that no hours were at hand for → what makes them.
UNMEASURED = {
    "hour_summary": "hour.py",
    "mutants_rooms": "mutants.py",
    "hour_tasks": "hour.py",
    "hour_again": "hour.py --again 100",
}


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def measured(name: str, where: Callable[[str], Path] = figures.committed) -> str:
    """Figures that `where` finds, with their machine. Errors: SystemExit where nobody measured any."""
    path = where(name)
    try:
        lines = figures.read(path)
    except FileNotFoundError:
        if name in UNMEASURED:
            return f"Not measured on a quiet machine yet: `python bench/{UNMEASURED[name]} --replace` does."
        sys.exit(f"the page asks for {name}, and there is no {path}")
    head, *rows = [[cell.replace("_", " ") for cell in line] for line in lines]
    machine = figures.measured_on(path.parent).get(name, "not written down at the time")
    return f"{markdown(head, rows)}\n\nMeasured on: {machine}."


def filled(text: str, table: Callable[[str], str] = measured) -> str:
    """A page's `text` with the tables of today. Errors: SystemExit."""
    return PLACE.sub(lambda place: f"<!-- {place[1]} -->\n{table(place[1])}\n<!-- end -->", text)


def least_of(arch: EncoderArch) -> str:
    if not arch.squares:
        return str(arch.least)
    return ", ".join(f"n x {square}" + f" from {side} on" * bool(side) for side, square in arch.squares)


def arches() -> str:
    rows = [
        (
            f"`{name}`",
            it.about,
            it.reads,
            f"{it.frames} x {it.size} x {it.size}" if it.reads == "clips" else f"{it.size} x {it.size}",
            f"{it.parameters:,}",
            f"{it.features:,}" + ", adjustable" * it.chosen,
            least_of(it),
            "yes" if it.weights else "no",
        )
        for name, it in ARCHES.items()
    ]
    head = ("arch", "what it is", "reads", "meant for", "parameters", "features", "smallest side", "published weights")
    return markdown(head, rows)


def weights() -> str:
    rows = [
        (f"`{name}`", f"[`{it.file}`]({it.url})", f"{it.megabytes} MB", it.trained_on, it.licence)
        for name, it in ((name, arch.weights) for name, arch in ARCHES.items())
        if it is not None
    ]
    return markdown(("arch", "file", "size", "trained on", "licence of the weights"), rows)


def of_encoders(name: str) -> str:
    """A table of docs/algorithms.md."""
    return {"arches": arches, "weights": weights}[name]()


def main() -> None:
    """Write both pages."""
    out = DOCS if figures.REPLACES else figures.OWN
    out.mkdir(exist_ok=True)
    tables = {"benchmarks.md": lambda name: measured(name, figures.newest), "algorithms.md": of_encoders}
    for page, table in tables.items():
        (out / page).write_text(filled((DOCS / page).read_text(encoding="utf-8"), table), encoding="utf-8")
        print(f"written: {(out / page).relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
