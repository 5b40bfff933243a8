"""Reading below one `$SHARED` for somebody else: component by component, no link followed, nothing but its own kinds.

Who may serve is not who may read: a link that one member of a group plants must not show another member's files.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from syncd.shared.layout import SAVED_FILE

#: What a client may see. Of the inboxes, the agents that their contributors let be watched; and its own verdicts, by
#: other messages.
READABLE = ("v1", "runs")
_INBOXES, _SHOWN = ("v1", "inbox"), "live"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: NONBLOCK: a fifo in the way must not stop the server.
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Folder:
    """An open folder. Names are single components. Errors of every method: OSError (FileNotFoundError: not there)."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @classmethod
    def root(cls, path: Path) -> Folder:
        """The folder at `path`, which may be a link: it is the administrator's."""
        return cls(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def close(self) -> None:
        """Give the descriptor back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def fileno(self) -> int:
        """Its descriptor; -1 once it is closed."""
        return self._fd

    def folder(self, name: str) -> Folder:
        """A folder in it; a link is refused."""
        return Folder(os.open(_component(name), _FOLDER_FLAGS, dir_fd=self._fd))

    def down(self, names: tuple[str, ...]) -> Folder:
        """The folder at the end of `names`."""
        here = Folder(os.dup(self._fd))
        for name in names:
            with here:
                here = here.folder(name)
        return here

    def open(self, name: str) -> int:
        """A descriptor of a regular file in it, to be closed by the caller."""
        fd = os.open(_component(name), _FILE_FLAGS, dir_fd=self._fd)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise FileNotFoundError(errno.ENOENT, "not a regular file", name)
        return fd

    def read(self, name: str, most: int) -> bytes:
        """The content of a file, at most `most` bytes of it."""
        fd = self.open(name)
        with open(fd, "rb") as file:
            return file.read(most)

    def names(self) -> list[str]:
        """What is in it, sorted."""
        return sorted(os.listdir(self._fd))

    def entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """Its regular files with their status, links left out."""
        for name in self.names():
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    yield name, status

    def changed_at(self) -> int:
        """When a name in it came, went or was replaced (ns). A network folder may say so seconds late."""
        return os.fstat(self._fd).st_mtime_ns


def _component(name: str) -> str:
    if not name or name in {".", ".."} or "/" in name or "\0" in name:
        raise FileNotFoundError(errno.ENOENT, "not a name", name)
    return name


def open_file(root: Path, path: str) -> int:
    """A descriptor of the file at `path` (`v1/runs/…`, `v1/inbox/<who>/live/…`) below `root`; where this is a run
    folder, of a checkpoint's (`syncd.shared.layout`).

    Errors: FileNotFoundError, OSError.
    """
    parts = tuple(path.split("/"))
    is_shown = parts[:2] == _INBOXES and parts[3:4] == (_SHOWN,)
    is_offered = parts[: len(READABLE)] == READABLE or is_shown or SAVED_FILE.fullmatch(path)
    if not is_offered or len(parts) == len(READABLE):
        raise FileNotFoundError(errno.ENOENT, "not on offer", path)
    with Folder.root(root) as top, top.down(parts[:-1]) as folder:
        return folder.open(parts[-1])
