"""Tables: docs/benchmarks.md and bench/results/README.md from figures, docs/algorithms.md from the code's own words.

`python bench/report.py` writes bench/out/benchmarks.md, with this machine's own figures where there are some (see
bench/figures.py), and bench/out/algorithms.md; `python bench/report.py --replace` writes both pages in docs/, and
bench/results/README.md. A table stands between `<!-- NAME -->` and `<!-- end -->`, and nothing else of a page is
changed. report.toml says which figures a table of the benchmarks has. `make bench` ends with it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import figures

from trainer.config.network import ARCHES, EncoderArch

DOCS = Path(__file__).resolve().parents[1] / "docs"
PLACE = re.compile(r"<!-- (\w+) -->\n.*?<!-- end -->", re.DOTALL)
SPEC = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_PROCESSOR = re.compile(r"NVIDIA (\w+)|(AMD|Intel).*family (\d+, model \d+)")
#: Above the list of the figures.
LISTED = """# The raw figures

`python bench/SCRIPT --replace` writes a file anew. Where a commit follows the script, today's script no longer makes
the file: `git show COMMIT:bench/SCRIPT` prints the one that did. "Machine" is a GPU, or a processor's maker, family
and model; [machines.csv](machines.csv) adds cores, date and commit. [Benchmarks](../../docs/benchmarks.md) compares the
figures.
"""


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


class Cell(str):
    """A value of a CSV file, which can be rounded: `{a[s]:.1f}`."""

    __slots__ = ()

    def __format__(self, spec: str) -> str:
        return format(float(self), spec) if spec else str(self)


def picked(path: Path, where: dict[str, str]) -> dict[str, Cell]:
    """The columns of the rows that `where` selects: of several rows the least to the greatest value, and how many
    (`rows`). Errors: LookupError where there is none.
    """
    if not path.exists():
        raise LookupError(f"the page asks for {path.stem}, and there is no {path}")
    head, *lines = figures.read(path)
    rows = [row for row in (dict(zip(head, line, strict=True)) for line in lines) if row.items() >= where.items()]
    if not rows:
        raise LookupError(f"{path} has no row with {where}")
    found = {"rows": Cell(len(rows))}
    for column in head:
        values = sorted({row[column] for row in rows}, key=lambda value: (len(value), value))
        found[column] = Cell(" to ".join(dict.fromkeys((values[0], values[-1]))))
    return found


def ratios(name: str, find: Callable[[str], Path] = figures.committed) -> str:
    """The table `name` of the benchmarks, with scripts and processors. Errors: SystemExit."""
    if name not in SPEC["tables"]:
        sys.exit(f"the page asks for {name}, and bench/report.toml has no such table")
    lines, used = [], {}
    for row in SPEC["tables"][name]:
        given = {key: {**where} for key, where in row.items() if isinstance(where, dict)}
        paths = {key: find(where.pop("of")) for key, where in given.items()}
        used.update({path.stem: path for path in paths.values()})
        try:
            chosen: dict[str, Any] = {key: picked(path, given[key]) for key, path in paths.items()}
        except LookupError as missing:
            if find is figures.committed:
                sys.exit(str(missing))
            lines.append((row["what"], "not measured"))  # a bench of today makes no rows of some rivals
            continue
        if "ratio" in row:
            chosen["ratio"] = float(chosen["a"][row["ratio"]]) / float(chosen["b"][row["ratio"]])
        lines.append((row["what"].format(**chosen), row["says"].format(**chosen)))
    sources = (f"[{of}](../bench/results/{of}.csv) ({script_of(of)}, {machine_of(path)})" for of, path in used.items())
    return f"{markdown(('Measured', 'Result'), lines)}\n\nFigures: {', '.join(sources)}."


def script_of(name: str) -> str:
    script, _, commit = SPEC["figures"][name][0].partition("@")
    return f"`{script}`" + f"@{commit}" * bool(commit)


def machine_of(path: Path) -> str:
    """Its GPU, else the maker, family and model of its processor, as far as they were written down."""
    machine = figures.measured_on(path.parent).get(path.stem, "")
    found = _PROCESSOR.match(machine)
    if found is None:
        return machine.partition(",")[0] or "unknown"
    return found[1] or f"{found[2]} {found[3].replace(', model ', '/')}"


def listing() -> str:
    """The text of bench/results/README.md."""
    rows = [
        (f"[{name}]({name}.csv)", script_of(name), what, machine_of(figures.committed(name)))
        for name, (_, what) in sorted(SPEC["figures"].items())
        if figures.committed(name).exists()
    ]
    return f"{LISTED}\n{markdown(('file', 'script', 'what', 'machine'), rows)}\n"


def filled(text: str, table: Callable[[str], str] = ratios) -> str:
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
    if figures.REPLACES:
        (figures.COMMITTED / "README.md").write_text(listing(), encoding="utf-8")
    tables = {"benchmarks.md": lambda name: ratios(name, figures.newest), "algorithms.md": of_encoders}
    for page, table in tables.items():
        (out / page).write_text(filled((DOCS / page).read_text(encoding="utf-8"), table), encoding="utf-8")
        print(f"written: {(out / page).relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
