"""The static files of the page, read once: the only files that are ever served."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

#: Beside the code, in the wheel as in the tree.
STATIC = Path(__file__).resolve().parents[1] / "static"
#: What the page is made of, in the order in which it is needed.
PAGE = "index.html"
FILES = (
    PAGE,
    "page.css",
    "vendor/uPlot.min.css",
    "vendor/uPlot.iife.min.js",
    "vendor/lit-html.js",
    "main.js",
    "panels.js",
    "drawing.js",
)
#: Loaded with the first word of agents at play.
AGENTS = ("tiles.js", "orbit.js", "playback.js", "scene.js")
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


@dataclass(frozen=True)
class Asset:
    """One file. `kind`: its media type; `tag`: changes when it does."""

    data: bytes
    kind: str

    @cached_property
    def zipped(self) -> bytes:
        """The same for browsers that take gzip."""
        return gzip.compress(self.data, 9, mtime=0)

    @cached_property
    def tag(self) -> str:
        """For `ETag`."""
        return f'"{hashlib.sha256(self.data).hexdigest()[:32]}"'


def load_assets() -> dict[str, Asset]:
    """Path in the URL → file; "/" is the page. Errors: OSError where the installation is not whole."""
    found = {f"/{name}": Asset((STATIC / name).read_bytes(), _KINDS[Path(name).suffix]) for name in (*FILES, *AGENTS)}
    return {"/": found[f"/{PAGE}"], **found}
