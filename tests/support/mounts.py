"""File systems of a test's own."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from daemons import PATIENCE_S
from needs import need


@contextlib.contextmanager
def mounted(where: Path, options: str) -> Iterator[None]:
    """A tmpfs on the folder `where`, with mount(8)'s `options`."""
    with _mount("-t", "tmpfs", "-o", options, "none", where=where):
        yield


@contextlib.contextmanager
def bound(folder: Path, where: Path) -> Iterator[None]:
    """`folder` under a second name."""
    where.mkdir()
    with _mount("--bind", str(folder), where=where):
        yield


@contextlib.contextmanager
def _mount(*words: str, where: Path) -> Iterator[None]:
    """Skips the test where this user may not mount: in a container root may not either."""
    missing = [] if os.geteuid() == 0 else ["root"]
    if not missing:
        done = subprocess.run(["mount", *words, where], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
        missing = [] if done.returncode == 0 else [done.stderr.partition("\n")[0]]
    need("a file system of a test's own", missing)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", where], check=True, timeout=PATIENCE_S)
