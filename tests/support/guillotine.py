"""kill -9 at the k-th contact with the disk, for programs that prove what a kill leaves behind."""

from __future__ import annotations

import builtins
import io
import os
import signal
from collections.abc import Callable
from typing import Any, Self

#: What changes a disk. `open` is counted where it writes, and so is every write to what it opened.
CALLS = ("fsync", "replace", "rename", "link", "unlink", "rmdir", "mkdir")


class Guillotine:
    """Falls at the k-th contact; a write is cut in half by it."""

    def __init__(self, k: int | None) -> None:
        self.k = k
        self.contacts: list[str] = []

    def contact(self, name: str, last_act: Callable[[], Any] | None = None) -> None:
        self.contacts.append(name)
        if self.k is not None and len(self.contacts) == self.k:
            if last_act:
                last_act()
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        for name in CALLS:
            setattr(os, name, self._counted(name, getattr(os, name)))
        real_open = builtins.open

        def counting_open(path: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
            if not set(mode) & set("wxa"):
                return real_open(path, mode, *args, **more)
            self.contact("open")
            return Writing(real_open(path, mode, *args, **more), self)

        builtins.open = counting_open  # type: ignore[assignment]

    def _counted(self, name: str, real: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            self.contact(name)
            return real(*args, **more)

        return call


class Writing:
    """An open file whose writes are counted."""

    def __init__(self, file: io.BufferedWriter, guillotine: Guillotine) -> None:
        self.file, self.guillotine = file, guillotine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, data: bytes) -> int:
        def half() -> None:
            self.file.write(data[: len(data) // 2])
            self.file.flush()

        self.guillotine.contact("write", half)
        return self.file.write(data)
