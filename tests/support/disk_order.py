"""In which order the disk is asked for what makes a file durable: what a crash leaves depends on nothing else."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

#: What is accidental in the name of an unfinished file.
_ACCIDENTAL = re.compile(r"\.\d+\.[0-9a-f]{8}(?=\.tmp)")


def disk_order(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[str]:
    """What is done below `root` from now on, in its order: `fsync FOLDER`, `fsync FILE (BYTES)`, `rename A → B`, and
    the same for `replace` and `link`. The names are relative to `root`.
    """
    asked: list[str] = []

    def name(path: Any) -> str | None:
        found = Path(os.path.abspath(path))
        return _ACCIDENTAL.sub("", str(found.relative_to(root))) if found.is_relative_to(root) else None

    def fsync(fd: int, real: Callable[[int], None] = os.fsync) -> None:
        found = os.fstat(fd)
        if (path := name(os.readlink(f"/proc/self/fd/{fd}"))) is not None:
            asked.append(f"fsync {path}" + (f" ({found.st_size})" if stat.S_ISREG(found.st_mode) else ""))
        real(fd)

    def noted(word: str, real: Callable[..., None]) -> Callable[..., None]:
        def call(old: Any, new: Any, **more: Any) -> None:
            real(old, new, **more)
            if (path := name(old)) is not None:
                asked.append(f"{word} {path} → {name(new)}")

        return call

    monkeypatch.setattr(os, "fsync", fsync)
    for word in ("rename", "replace", "link"):
        monkeypatch.setattr(os, word, noted(word, getattr(os, word)))
    return asked
