"""Where a contributor's rsync puts files: a folder of its own, from which only whole segments reach the inbox.

rsync writes whatever its client sends: any name, any number. The inbox's own reception
(`syncd.shared.reception`) then takes over what is a segment, by its rules: name, sum, size, quota, an existing slot, a
contributor who was not dropped. The rest is deleted and told.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from syncd.shared.inbox import MAX_SEGMENT_BYTES, MAX_WAITING_BYTES, Inbox
from syncd.shared.layout import SLOT, make_folder
from syncd.shared.reception import Quota, Reception, Refusal, Stored

#: How the folders are called within `inbox/<who>/tmp/`; a run id never begins so (see `_stale`).
PREFIX = ".landing-"
#: A folder whose gate was killed. No transfer takes so long.
ABANDONED_S = 86_400.0
#: Files and folders of one transfer: more than may wait in an inbox. Counted with bytes, so that empty ones cannot
#: flood it.
MAX_FILES = 20_000
#: Folders within one another: <run id>/<slot>/.part. Deeper ones can have names that no system call of ours takes.
MAX_DEPTH = 4


class Landing:
    """One transfer's folder; made at the start of the `with` block, gone at its end. Errors: OSError."""

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._quota = Quota(inbox)
        self.path = inbox.path / "tmp" / f"{PREFIX}{int(time.time())}-{secrets.token_hex(8)}"

    def __enter__(self) -> Self:
        make_folder(self.path.parent)
        _stale(self.path.parent)
        os.mkdir(self.path, 0o700)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def is_overfull(self) -> bool:
        """Whether more arrived than may ever wait in an inbox: the transfer should end."""
        count = total = 0
        for name, entry in self._walk():
            count += 1
            try:
                total += entry.stat(follow_symlinks=False).st_size if entry.is_file(follow_symlinks=False) else 0
            except FileNotFoundError:
                continue  # rsync renames its temporary files
            if count > MAX_FILES or total > MAX_WAITING_BYTES or name.count("/") >= MAX_DEPTH:
                return True
        return False

    def take_in(self) -> list[tuple[str, Refusal]]:
        """Hand every arrived segment to the inbox; those that it did not take, with its answer."""
        refused = []
        files = [(name, entry) for name, entry in self._walk() if not entry.is_dir(follow_symlinks=False)]
        for name, entry in sorted(files, key=lambda found: found[0]):
            answer = self._take_in(name, entry)
            if isinstance(answer, Refusal):
                refused.append((name, answer))
        return refused

    def _take_in(self, name: str, entry: os.DirEntry[str]) -> Stored | Refusal:
        parts = name.split("/")
        if len(parts) != 3 or not SLOT.fullmatch(parts[1]) or not entry.is_file(follow_symlinks=False):
            return Refusal("name", "it is not called <run id>/<slot>/<sha256>")
        with open(os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            data = file.read(MAX_SEGMENT_BYTES + 1)
        answer = self._inbox.receive(parts[0], int(parts[1]), parts[2], len(data), self._quota)
        if not isinstance(answer, Reception):
            return answer
        with answer as reception:
            reception.write(data[reception.offset :])
            return reception.finish()

    def _walk(self) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Files and folders with their paths below this one, down to the first ones that are too deep."""
        waiting = [("", self.path)]
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


def _stale(folder: Path) -> None:
    """Delete what killed gates left behind."""
    for name in os.listdir(folder):
        begun = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and begun.isdigit() and int(begun) < time.time() - ABANDONED_S:
            shutil.rmtree(folder / name, ignore_errors=True)
