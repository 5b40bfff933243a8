"""Which policies stay, and clearing the others away without taking one from under a reader; and of inboxes what nobody
fetches any more: verdicts, quarantine, waiting segments of runs that are over.

Clearing away decides nothing about correctness: it may be killed anywhere, run twice, or never run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from anchorleg.files import LEFT_BEHIND_S, sweep_temporary
from syncd.shared.inbox import Inbox, live_files, reason_of, regular_files, verdict_files, withdraw
from syncd.shared.layout import SHA256, FoundFile, SlotPlace, Version, files_in, folder_names

#: A reader has the manifest and fetches its blob: it gets this long.
UNLISTED_S = 600.0
#: Where nobody clears away again, a blob without a manifest must be this old: a writer makes the two within seconds.
LAST_UNLISTED_S = 60.0


@dataclass(frozen=True)
class Keep:
    """The `newest` so many; and of those of the last `thinned_s` seconds, each attempt's last one of every `every_s`:
    experience of an attempt's last policy may come long after the next attempt has begun, and is known by that policy.

    `is_last`: nobody clears away again, so blobs go with their last manifest; a reader that fetches one looks again.
    """

    newest: int
    thinned_s: float = 0.0
    every_s: float = 60.0
    is_last: bool = False

    def last(self) -> Keep:
        """The same where a training is over: of no experience it must be known any more which policy acted."""
        return replace(self, thinned_s=0.0, is_last=True)


#: A learner's. All of a day would be 26,000 files at a publication each 3 s; one a minute is enough to go back to.
LEARNERS = Keep(newest=100, thinned_s=86_400.0, every_s=60.0)
#: A learner's averaged ones, each as large as a policy: nobody goes back to one, so that some of the day are enough.
AVERAGES = Keep(newest=10, thinned_s=86_400.0, every_s=600.0)
#: A laptop's mirror: the one in use, the one before, and one that arrives.
MIRRORS = Keep(newest=3)


def kept(made_at: Mapping[Version, float], keep: Keep, now: float) -> set[Version]:
    """Which of the versions stay. `made_at`: unix seconds; pure. The highest always stays."""
    ascending = sorted(made_at)
    last_of_its_period = {(version.attempt, int(made_at[version] // keep.every_s)): version for version in ascending}
    recent = {version for version in last_of_its_period.values() if made_at[version] >= now - keep.thinned_s}
    return set(ascending[-max(1, keep.newest) :]) | (recent if keep.thinned_s > 0 else set())


def collect(place: SlotPlace, *, now: float, keep: Keep = LEARNERS) -> list[str]:
    """Delete what is neither kept nor needed; returns one sentence for each thing that could not be done.

    A manifest goes at once; its blob when no manifest has named it for `UNLISTED_S`, or with it, see `Keep.is_last`.
    Never raises OSError.
    """
    troubles: list[str] = []
    try:
        made_at = _made_at(place)
        staying = kept(made_at, keep, now)
        for version in sorted(set(made_at) - staying):
            _drop(place, version, () if keep.is_last else _blobs_of(place, version, made_at[version]), now)
        named = {sha256 for version in sorted(staying) for sha256 in _blobs_of(place, version, made_at[version])}
        _sweep_blobs(place, named, now - (LAST_UNLISTED_S if keep.is_last else UNLISTED_S))
        sweep_slot(place, before=now - LEFT_BEHIND_S)
        sweep_temporary(place.slot_itself.path.parent, now - LEFT_BEHIND_S)
    except OSError as error:
        troubles.append(f"{error.filename or place.path}: old policies cannot be removed ({error.strerror})")
    return troubles


def _made_at(place: SlotPlace) -> dict[Version, float]:
    """Version → when its manifest was written here (unix seconds)."""
    found = ((Version.of_file(file.path.name), file.written_at) for file in files_in(place.manifests))
    return {version: at for version, at in found if version is not None}


def _drop(place: SlotPlace, version: Version, sums: tuple[str, ...], now: float) -> None:
    """The manifest goes; the age of the blobs `sums` counts from now."""
    place.manifest(version).unlink(missing_ok=True)
    for sha256 in sums:
        with contextlib.suppress(FileNotFoundError):
            os.utime(place.blob(sha256), (now, now))


def _blobs_of(place: SlotPlace, version: Version, made_at: float) -> tuple[str, ...]:
    """The sums that a manifest names; none where it is gone or damaged: no reader can use it then. Errors: OSError."""
    try:
        return _named_in(place.manifest(version), made_at)
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return ()


@lru_cache(maxsize=2048)
def _named_in(manifest: Path, made_at: float) -> tuple[str, ...]:  # noqa: ARG001 - the time is a part of the cache's key
    """`_blobs_of`, once for each manifest: a learner keeps some 1,500, and looks at all of them every minute.

    No manifest is ever written again. Should another one take its place, that has another time.
    """
    value = json.loads(manifest.read_bytes())
    sums = [str(value[name]["sha256"]) for name in ("blob", "encoder") if value.get(name) is not None]
    if not sums or not all(map(SHA256.fullmatch, sums)):
        raise ValueError(sums)
    return tuple(sums)


def _sweep_blobs(place: SlotPlace, named: set[str], before: float) -> None:
    for folder in folder_names(place.blobs):
        unnamed = files_in(place.blobs / folder, lambda name: SHA256.fullmatch(name) and name not in named)
        _delete(file for file in unnamed if file.written_at < before)


def sweep_slot(place: SlotPlace, *, before: float) -> None:
    """`sweep_temporary` for all folders of a slot. Errors: OSError."""
    blobs = [place.blobs / name for name in folder_names(place.blobs)]
    for folder in (place.path, place.manifests, place.metrics, place.live, *blobs):
        sweep_temporary(folder, before)


#: What nobody looked into within a week goes from quarantine, and the oldest where there is too much.
QUARANTINE_S = 7 * 86_400.0
#: A verdict whose contributor never came back for it.
VERDICT_S = 7 * 86_400.0
#: Waiting for a learner that never runs again; it goes to quarantine. A queue may take days.
WAITING_S = 14 * 86_400.0
#: Accepted, but no checkpoint took it in since: the run is over.
ACCEPTED_S = 30 * 86_400.0
#: What a kill left behind.
ABANDONED_S = 86_400.0

_REASON = re.compile(rf"{SHA256.pattern}\.reason\.json")


def prune(inbox: Inbox, *, now: float) -> None:
    """Bound what one contributor's folder holds; `now`: unix seconds. May be killed anywhere. Errors: OSError."""
    most = inbox.limits
    _delete(file for file in inbox.files("accepted") if file.arrived_at < now - ACCEPTED_S)
    verdicts = sorted(verdict_files(inbox.path / "verdicts"), key=lambda file: -file.arrived_at)
    _delete(verdicts[most.verdicts_kept :])
    _delete(file for file in verdicts[: most.verdicts_kept] if file.arrived_at < now - VERDICT_S)
    held = 0
    for file in sorted(inbox.files("quarantine"), key=lambda file: -file.arrived_at):
        held += file.bytes
        if held > most.quarantined_bytes or file.arrived_at < now - QUARANTINE_S:
            reason_of(file.path).unlink(missing_ok=True)  # first: no reason is ever left without its segment
            _delete([file])
    for file in list(inbox.files("new")):
        if file.arrived_at < now - WAITING_S:
            inbox.refuse_if_there(file.path, "stale", "no learner of its slot ran for two weeks", now)
    for folder in inbox.live_folders():  # a server that was killed took none away
        changed_at = max((folder.stat().st_mtime, *(file.arrived_at for file in live_files(folder))))
        if changed_at < now - ABANDONED_S:
            withdraw(folder)
        else:
            sweep_temporary(folder, now - LEFT_BEHIND_S)
    _sweep(inbox, now)


def _sweep(inbox: Inbox, now: float) -> None:
    """What kills left behind: unfinished small files, and reasons whose segment went another way."""
    quarantine = [inbox.path / "quarantine" / run / slot for run, slot in inbox.slots_in("quarantine")]
    new = [inbox.path / "new" / run / slot for run, slot in inbox.slots_in("new")]
    untrue = inbox.path / "untrue"
    runs = [] if inbox.path.is_symlink() or untrue.is_symlink() else [untrue / run for run in folder_names(untrue)]
    accounts = inbox.path.parents[1] / "accounts"  # of all, and nobody else looks there
    for folder in (accounts, inbox.path, inbox.path / "verdicts", inbox.path / "counts", *runs, *quarantine, *new):
        sweep_temporary(folder, now - LEFT_BEHIND_S)
    for place in quarantine:
        for file in regular_files(place, _REASON.fullmatch):
            if file.arrived_at < now - ABANDONED_S and not file.path.with_name(file.path.name[:64]).exists():
                _delete([file])


def _delete(files: Iterable[FoundFile]) -> None:
    for file in files:
        file.path.unlink(missing_ok=True)
