"""A network folder that refuses for a moment what is asked of it (a stale handle), as while its server restarts."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from orchestrator.disk import Disk


class RefusingDisk(Disk):
    """`left` calls of `kind` (read, names, make_folder) fail, of paths that end with `of`; `granted` come before them.
    `refused` is called with each.
    """

    def __init__(self, kind: str, of: str, left: int, granted: int = 0) -> None:
        self.kind, self.of, self.left, self.granted = kind, of, left, granted
        self.refused: Callable[[], None] = lambda: None

    def _pass(self, kind: str, path: Path) -> None:
        if kind != self.kind or not path.name.endswith(self.of) or not self.left:
            return
        if self.granted:
            self.granted -= 1
            return
        self.left -= 1
        self.refused()
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))

    def read(self, path: Path) -> bytes:
        self._pass("read", path)
        return super().read(path)

    def names(self, folder: Path) -> list[str]:
        self._pass("names", folder)
        return super().names(folder)

    def make_folder(self, path: Path, *, exist_ok: bool = False) -> None:
        self._pass("make_folder", path)
        super().make_folder(path, exist_ok=exist_ok)
