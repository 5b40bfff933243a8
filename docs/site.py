"""Hooks of mkdocs (`make docs`): pages that are made, and links that leave the folder of the pages."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: Any) -> Files:
    """Add the list of all errors, CONTRIBUTING.md and SECURITY.md."""
    errors = runpy.run_path(str(ROOT / "docs/errors.py"))["page"]()
    made = {
        "errors.md": errors.replace("../troubleshooting.md", "troubleshooting.md"),
        **{
            f"{name.lower()}.md": (ROOT / f"{name}.md").read_text(encoding="utf-8").replace("](docs/", "](")
            for name in ("CONTRIBUTING", "SECURITY")
        },
    }
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to files of the repository become their names: the site has the pages alone."""
    for name, page in (
        ("../CONTRIBUTING.md", "contributing.md"),
        ("../SECURITY.md", "security.md"),
        ("made/errors.md", "errors.md"),
    ):
        markdown = markdown.replace(f"]({name}", f"]({page}")
    markdown = re.sub(r"\]\(\.\./README\.md(?:#[\w-]+)?\)", "](quickstart.md)", markdown)
    return re.sub(r"(?<!!)\[([^\]]+)\]\(\.\./[^)]*\)", r"\1", markdown)
