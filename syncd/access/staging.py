"""Where a contributor's rsync puts files: a folder of its own, from which only whole segments reach the inbox.

rsync writes whatever its client sends: any name, any number. The inbox's own reception
(`syncd.shared.reception`) then takes over what is a segment, by its rules: name, sum, size, quota, an existing slot, a
contributor who was not dropped. The rest is deleted and told.

One transfer of a contributor at a time on each machine: a folder that is there when the next one begins is what a
killed gate left. What cannot be removed keeps the next one out, so it cannot add up.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from anchorleg.files import read_regular
from anchorleg.modes import make_shared_folder
from syncd.access import places
from syncd.errors import StorageError, UnreachableError
from syncd.shared.inbox import MAX_SEGMENT_BYTES, STAGING_PREFIX, Inbox
from syncd.shared.layout import SLOT, folder_names
from syncd.shared.reception import Quota, Reception, Refusal, Stored, receive
from syncd.shared.removal import remove_tree
from syncd.wire.refusals import FOR_NOW

#: Files and folders of one transfer: more than may wait in an inbox. Counted with bytes, so that empty ones cannot
#: flood it.
MAX_FILES = 20_000
#: Folders within one another: <run id>/<slot>/.part. Deeper ones can have names that no system call of ours takes.
MAX_DEPTH = 4


class Staging:
    """One transfer's folder; made at the start of the `with` block, gone at its end.

    Errors: UnreachableError where another transfer of this contributor runs here, StorageError where what an earlier
    one left cannot be removed; OSError.
    """

    def __init__(self, inbox: Inbox, most_files: int = MAX_FILES) -> None:
        self._inbox, self._most_files = inbox, most_files
        self._quota = Quota(inbox)
        self._place = -1
        self._before = 0
        self._here = f"{STAGING_PREFIX}{_host()}-"
        self.path = inbox.path / "tmp" / f"{self._here}{int(time.time())}-{secrets.token_hex(8)}"

    def __enter__(self) -> Self:
        above = self.path.parent
        place = places.take(self._inbox.who, self._inbox.path, "staging", places.STAGINGS)
        if place is None:
            raise UnreachableError(f"another rsync of {self._inbox.who} brings segments now: {FOR_NOW} it is done")
        self._place = place
        try:
            make_shared_folder(above)
            for name in folder_names(above):
                if name.startswith(self._here):
                    _remove(above / name)
            others = [name for name in folder_names(above) if name.startswith(STAGING_PREFIX)]
            most = self._inbox.limits.waiting_bytes
            self._before = self._inbox.claimed().bytes + sum(_walked_bytes(above / name, most) for name in others)
            os.mkdir(self.path, 0o700)
        except BaseException:
            os.close(place)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            _remove(self.path)
        finally:
            os.close(self._place)

    def is_overfull(self) -> bool:
        """Whether more arrived than may ever wait in an inbox: the transfer should end."""
        total, most_bytes = self._before, self._inbox.limits.waiting_bytes
        for count, (name, entry) in enumerate(_walk(self.path), 1):
            total += _size_of(entry)
            if count > self._most_files or total > most_bytes or name.count("/") >= MAX_DEPTH:
                return True
        return False

    def take_in(self) -> list[tuple[str, Refusal]]:
        """Hand every arrived segment to the inbox; those that it did not take, with its answer."""
        refused = []
        files = [(name, entry) for name, entry in _walk(self.path) if not entry.is_dir(follow_symlinks=False)]
        for name, entry in sorted(files, key=lambda found: found[0]):
            answer = self._take_in(name, entry)
            if isinstance(answer, Refusal):
                refused.append((name, answer))
        return refused

    def _take_in(self, name: str, entry: os.DirEntry[str]) -> Stored | Refusal:
        parts = name.split("/")
        if len(parts) != 3 or not SLOT.fullmatch(parts[1]) or not entry.is_file(follow_symlinks=False):
            return Refusal("name", "it is not called <run id>/<slot>/<sha256>")
        try:
            data = read_regular(entry.path, MAX_SEGMENT_BYTES + 1)
        except PermissionError:
            return Refusal("name", "its mode forbids to read it")
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ELOOP):
                raise
            return Refusal("name", "it is no file any more")
        answer = receive(self._inbox, parts[0], int(parts[1]), parts[2], len(data), self._quota)
        if not isinstance(answer, Reception):
            return answer
        with answer as reception:
            reception.write(data[reception.offset :])
            return reception.finish()


def _walk(top: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Files and folders with their paths below `top`, down to the first ones that are too deep. Errors: OSError."""
    waiting = [("", top)]
    while waiting:
        above, folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    yield f"{above}{entry.name}", entry
                    if entry.is_dir(follow_symlinks=False) and above.count("/") < MAX_DEPTH:
                        waiting.append((f"{above}{entry.name}/", Path(entry.path)))
        except FileNotFoundError:
            continue


def _walked_bytes(folder: Path, most: int) -> int:
    """What another machine's transfer has brought so far; `most` where that cannot be looked at."""
    try:
        return sum(_size_of(entry) for _, entry in _walk(folder))
    except OSError:
        return most


def _size_of(entry: os.DirEntry[str]) -> int:
    """A file's bytes; 0 where it is gone, for rsync renames its temporary files. Folders count as 0: they have a size
    too, another one on every file system.
    """
    try:
        return entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0
    except FileNotFoundError:
        return 0


def _remove(folder: Path) -> None:
    try:
        remove_tree(folder)
    except OSError as error:
        raise StorageError(
            f"{folder.name}, what an earlier rsync brought, cannot be removed ({error.strerror}): the owner must"
        ) from error


def _host() -> str:
    """This machine's name, as a part of a folder's."""
    return "".join(letter for letter in socket.gethostname() if letter.isalnum())[:40] or "here"
