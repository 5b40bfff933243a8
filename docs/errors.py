"""Write the page of all errors, and of Slurm's reasons: `python docs/errors.py [OUT]`; default: docs/made/errors.md."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

from anchorleg.errors import catalogue
from orchestrator.decisions.reasons import REASONS

ROOT = Path(__file__).parents[1]
PACKAGES = ("orchestrator", "trainer", "syncd", "viewer")


def rows(package: str) -> list[str]:
    """A row of the table for each identifier, in the catalogue's order; without a code if it is part of another
    sentence.
    """
    found = []
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / package).rglob("*.py"))
    tree = importlib.import_module(f"{package}.errors")
    for kind, sentences in catalogue(package).items():
        while not hasattr(tree, kind):  # it stands beside what raises it, which may need torch
            kind = re.findall(rf"^class {kind}\((\w+)", sources, re.MULTILINE)[0]  # noqa: PLW2901 - its base
        code = getattr(tree, kind).exit_code
        for name, sentence in sentences.items():
            words = (
                " ".join(sentence.replace("{{", "{").replace("}}", "}").split())
                .replace("|", r"\|")
                .replace("<", "&lt;")
            )
            found.append(f"| `{name}` | {code if code != 1 else ''} | {words} |")
    return found


def page() -> str:
    """The page, as Markdown."""
    lines = ["# All errors", "", "Exit codes and remedies: [troubleshooting](../troubleshooting.md)."]
    for package in PACKAGES:
        lines += ["", f"## `{package}`", "", "| identifier | code | sentence |", "| --- | --- | --- |", *rows(package)]
    lines += [
        "",
        "## Slurm's reasons",
        "",
        "*waits*: it passes. *person*: you must act. *for ever*: it never runs.",
        "",
    ]
    lines += ["| Slurm says | | in words: job 12 … |", "| --- | --- | --- |"]
    lines += [f"| `{code}` | {reason.kind} | {reason.words} |" for code, reason in REASONS.items()]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/made/errors.md"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page(), encoding="utf-8")
