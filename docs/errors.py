"""Write the lists of docs/errors.md anew from each package's `errors.toml`: `python docs/errors.py`, or `--check`."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

from anchorleg.errors import catalogue

PAGE = Path(__file__).with_name("errors.md")
#: What stands between two of these is ours.
LIST = re.compile(r"(<!-- errors of (\w+) -->\n).*?(<!-- end of the list -->\n)", re.DOTALL)


def rows(package: str) -> list[str]:
    """A row of the table for each identifier, in the catalogue's order; without a code what is part of another's
    sentence.
    """
    found = []
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (PAGE.parents[1] / package).rglob("*.py"))
    tree = importlib.import_module(f"{package}.errors")
    for kind, sentences in catalogue(package).items():
        while not hasattr(tree, kind):  # it stands beside what raises it, which may need torch
            kind = re.findall(rf"^class {kind}\((\w+)", sources, re.MULTILINE)[0]  # noqa: PLW2901 - its base
        code = getattr(tree, kind).exit_code
        for name, sentence in sentences.items():
            words = " ".join(sentence.replace("{{", "{").replace("}}", "}").split()).replace("|", r"\|")
            found.append(f"| `{name}` | {code if code != 1 else ''} | {words} |")
    return found


def written(page: str) -> str:
    """`page` with its lists as they should be."""

    def listed(found: re.Match[str]) -> str:
        has_any = (PAGE.parents[1] / found[2] / "errors.toml").exists()
        table = ["", "| identifier | code | sentence |", "| --- | --- | --- |", *rows(found[2]), ""] if has_any else []
        return found[1] + "".join(f"{line}\n" for line in table) + found[3]

    return LIST.sub(listed, page)


if __name__ == "__main__":
    now = PAGE.read_text(encoding="utf-8")
    if "--check" not in sys.argv:
        PAGE.write_text(written(now), encoding="utf-8")
    elif written(now) != now:
        sys.exit("docs/errors.md: its lists are old: run docs/errors.py")
