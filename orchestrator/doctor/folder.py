"""Tries on a folder what a run will do there: on network folders each of these is missing somewhere."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from anchorleg.files import create_exclusive, write_bytes
from orchestrator.doctor.facts import DiskQuota, FolderFacts, ProbeStep
from orchestrator.run.begin import why_no_links

#: `quota` counts blocks of 1 KiB.
BLOCK = 1024
_NUMBER = re.compile(r"(\d+)\*?")


def nearest_existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    return next((one for one in (path, *path.parents) if one.is_dir()), Path("/"))


def try_folder(
    path: Path, *, clock: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
) -> FolderFacts:
    """Try everything in a new folder below `path` (or the nearest that exists), and remove it again.

    Never raises: what does not work is a `ProbeStep` with its error.
    """
    parent = nearest_existing(path)
    trial = parent / f".doctor-{secrets.token_hex(4)}"
    steps: list[ProbeStep] = []
    skew: list[float] = []

    def attempt(name: str, act: Callable[[], str | None]) -> None:
        began = monotonic()
        try:
            error = act() or ""
        except OSError as raised:
            error = raised.strerror or str(raised)
        steps.append(ProbeStep(name=name, seconds=monotonic() - began, error=error))

    def measure_skew() -> None:
        before = clock()
        (trial / "dated").write_bytes(b"x")
        modified = os.stat(trial / "dated").st_mtime
        # The server stamped it between these two moments; inside of them the clocks agree.
        after = clock()
        skew.append(min(0.0, modified - before) or max(0.0, modified - after))

    attempt("mkdir", trial.mkdir)
    if steps[0].error:
        return FolderFacts(path=str(parent), kind=filesystem_of(parent), steps=tuple(steps))
    try:
        attempt("write and fsync", lambda: write_bytes(trial / "file", b"one"))
        attempt("rename over a file", lambda: _replace(trial))
        attempt("link", lambda: _link(trial))
        attempt("unlink while open", lambda: _unlink_open(trial))
        attempt("rename of a folder", lambda: _rename_folder(trial))
        attempt("time of a file", measure_skew)
    finally:
        shutil.rmtree(trial, ignore_errors=True)
        with contextlib.suppress(OSError):
            # What NFS keeps of a removed open file goes with a moment's delay.
            if trial.exists():
                trial.rmdir()
    free_bytes, free_files = space_of(parent)
    return FolderFacts(
        path=str(parent),
        kind=filesystem_of(parent),
        steps=tuple(steps),
        free_bytes=free_bytes,
        free_files=free_files,
        skew_s=skew[0] if skew else None,
    )


def space_of(path: Path) -> tuple[int | None, int | None]:
    """Free bytes and free inodes for an ordinary user; None where the filesystem counts none."""
    try:
        told = os.statvfs(path)
    except OSError:
        return None, None
    return told.f_bavail * told.f_frsize, told.f_favail if told.f_files else None


def filesystem_of(path: Path, mounts: str | None = None) -> str:
    """The type of the filesystem that holds `path` (`nfs4`, `lustre`, …); empty where the system does not say."""
    if mounts is None:
        try:
            mounts = Path("/proc/self/mounts").read_text(errors="replace")
        except OSError:
            return ""
    best = ("", "")
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        place = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), fields[1])  # a space is \040 there
        if path.is_relative_to(place) and len(place) >= len(best[0]):
            best = (place, fields[2])
    return best[1]


def parse_quota(text: str) -> tuple[DiskQuota, ...]:
    """`quota -w`: one filesystem a line: blocks, quota, limit, (grace), files, quota, limit. Other lines are titles."""
    found = []
    for line in text.splitlines():
        name, *rest = line.split()[:20] or [""]
        # A grace time stands between the two groups where one is over its soft limit.
        numbers = [int(match[1]) for word in rest if (match := _NUMBER.fullmatch(word))]
        if not name.startswith("/") and ":" not in name:
            continue
        if len(numbers) == 6:
            blocks, soft_blocks, hard_blocks, files, soft_files, hard_files = numbers
            most_blocks = hard_blocks or soft_blocks
            found.append(
                DiskQuota(
                    filesystem=name,
                    used_bytes=blocks * BLOCK,
                    limit_bytes=most_blocks * BLOCK if most_blocks else None,
                    used_files=files,
                    limit_files=hard_files or soft_files or None,
                )
            )
    return tuple(found)


def _replace(trial: Path) -> str | None:
    write_bytes(trial / "file", b"two")
    return None if (trial / "file").read_bytes() == b"two" else "the old content is still there"


def _link(trial: Path) -> str | None:
    """The lease and the jobs' claims rest on this: exactly one of two gets the name."""
    if why := why_no_links(trial):
        return why
    if not create_exclusive(trial / "claim", b"first"):
        return "a name that was free could not be taken"
    if create_exclusive(trial / "claim", b"second"):
        return "a name was taken twice"
    return None if (trial / "claim").read_bytes() == b"first" else "the second writer won"


def _unlink_open(trial: Path) -> str | None:
    with open(trial / "open", "w+b") as file:
        file.write(b"still here")
        file.flush()
        os.unlink(trial / "open")
        file.seek(0)
        return None if file.read() == b"still here" else "its content was gone"


def _rename_folder(trial: Path) -> str | None:
    (trial / "new").mkdir()
    write_bytes(trial / "new" / "inside", b"x")
    os.rename(trial / "new", trial / "final")
    return None if (trial / "final" / "inside").exists() else "it was not there afterwards"
