"""What of one slot's curves changed since it was last told. Each file is read once, for as long as it is the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from syncd.shared.curves import MAX_CHUNK_BYTES, chunk_of_file
from syncd.wire.tree import Folder


@dataclass(frozen=True)
class CurveNews:
    """One file of metrics, as it was when it was read."""

    path: str
    bytes: int
    sha256: str


class CurveFeed:
    """Of the folder `metrics` whose path below the shared folder is `path`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._changed_at: int | None = None
        #: By file: inode, time and size, and what was read then.
        self._known: dict[str, tuple[tuple[int, int, int], CurveNews]] = {}
        self._told: dict[str, str] = {}

    def forget(self) -> None:
        """Tell everything again. What the files are stays known: they are not all read for each listing."""
        self._changed_at = None
        self._told.clear()

    def changes(self, metrics: Folder, *, full: bool) -> Iterator[CurveNews]:
        """What is new; `full`: whatever the folder's time says. What cannot be read hides nothing else, and is looked
        at again. Errors: OSError where the folder cannot be listed.
        """
        changed_at: int | None = metrics.changed_at()
        if changed_at == self._changed_at and not full:
            return
        self._changed_at = None
        for name, status in metrics.entries():
            if chunk_of_file(name) is None:
                continue
            try:
                news = self._news(metrics, name, status)
            except OSError:  # for its owner alone, say
                changed_at = None
                continue
            if news is not None:
                yield news
        self._changed_at = changed_at

    def _news(self, metrics: Folder, name: str, status: os.stat_result) -> CurveNews | None:
        stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
        known = self._known.get(name)
        if known is None or known[0] != stamp:
            content = metrics.read(name, MAX_CHUNK_BYTES + 1)
            found = CurveNews(f"{self._path}/{name}", len(content), hashlib.sha256(content).hexdigest())
            known = self._known[name] = (stamp, found)
        news = known[1]
        if news.bytes > MAX_CHUNK_BYTES or self._told.get(name) == news.sha256:
            return None
        self._told[name] = news.sha256
        return news
