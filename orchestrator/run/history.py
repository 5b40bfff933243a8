"""The event history: one line of JSON for each thing that happened, appended to the file of the owner's epoch.

It is kept whole. Ticks of a crontab, each an owner of its own, leave a file a minute, so old files are joined:
`events-<first>-<last>.jsonl` holds what the epochs from first to last have told, and counts before any file of theirs
that a crash left behind.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from orchestrator.run.rundir import RunDir

#: A folder of so many files is listed in no time; joining is then once in an hour and a half of a crontab at most.
FILES_KEPT = 100
#: What may still be written: an owner that was asleep tells its last events late.
EPOCHS_OPEN = 10
#: A reader that meets a joining looks again; joinings are an hour apart.
LOOKS = 3

_NAME = re.compile(r"events-(\d+)(?:-(\d+))?\.jsonl")


def append_event(run_dir: RunDir, epoch: int, kind: str, now: float, **facts: Any) -> None:
    """One line of history. Errors: OSError."""
    run_dir.disk.append(run_dir.events(epoch), {"at": now, "kind": kind, **facts})


def read_events(run_dir: RunDir) -> list[dict[str, Any]]:
    """All events, in the order of their epochs. A torn line of a crash is left out. Errors: OSError."""
    events = []
    for line in _read_whole(run_dir).decode(errors="replace").splitlines():
        try:
            events.append(json.loads(line))
        except (ValueError, RecursionError):
            continue
    return events


def _read_whole(run_dir: RunDir) -> bytes:
    for _ in range(LOOKS):
        try:
            return _joined(run_dir, _parts(run_dir))
        except FileNotFoundError:
            continue  # it was joined with others between our look and our read
    return _joined(run_dir, _parts(run_dir))


def _joined(run_dir: RunDir, parts: list[tuple[int, int, Path]]) -> bytes:
    texts = [run_dir.disk.read(path) for _, _, path in parts]
    # A line that a full disk cut off must not spoil the next file's first one.
    return b"".join(text if text.endswith(b"\n") else text + b"\n" for text in texts if text)


def join_old(run_dir: RunDir, epoch: int) -> None:
    """Join the files of epochs that are long over, where there are many. Killed anywhere, nothing is lost or told
    twice. Errors: OSError.
    """
    names = [name for name in run_dir.disk.names(run_dir.path) if _NAME.fullmatch(name)]
    if len(names) <= FILES_KEPT:
        return
    old = [part for part in _parts(run_dir) if part[1] < epoch - EPOCHS_OPEN]
    if len(old) > 1:
        first, last = old[0][0], max(part[1] for part in old)
        run_dir.disk.write(run_dir.path / f"events-{first}-{last}.jsonl", _joined(run_dir, old))
    kept = {path.name for _, _, path in _parts(run_dir)}
    for name in names:
        if name not in kept:
            run_dir.disk.remove(run_dir.path / name)


def _parts(run_dir: RunDir) -> list[tuple[int, int, Path]]:
    """The files that count: (first epoch, last epoch, path), in order. None lies within another."""
    matches = (_NAME.fullmatch(name) for name in run_dir.disk.names(run_dir.path))
    found = [(int(m[1]), int(m[2] or m[1]), run_dir.path / m[0]) for m in matches if m]
    parts: list[tuple[int, int, Path]] = []
    for part in sorted(found, key=lambda one: (one[0], -one[1])):
        if not parts or part[1] > parts[-1][1]:
            parts.append(part)
    return parts
