"""What nobody fetches any more goes: old uploads, verdicts, quarantine, and waiting segments of runs that are over."""

from __future__ import annotations

import re
from collections.abc import Iterable

from anchorleg.files import LEFT_BEHIND_S, sweep_temporary
from syncd.shared.inbox import Inbox, InboxFile, live_files, reason_of, regular_files, verdict_files
from syncd.shared.layout import SHA256, folder_names
from syncd.shared.offers import withdraw

#: What nobody looked into within a week goes from quarantine, and the oldest where there is too much.
QUARANTINE_S = 7 * 86_400.0
#: A verdict whose contributor never came back for it.
VERDICT_S = 7 * 86_400.0
#: Waiting for a learner that never runs again; it goes to quarantine. A queue may take days.
WAITING_S = 14 * 86_400.0
#: Accepted, but no checkpoint took it in since: the run is over.
ACCEPTED_S = 30 * 86_400.0
#: An upload that nobody goes on with, and what a kill left behind.
ABANDONED_S = 86_400.0

_REASON = re.compile(rf"{SHA256.pattern}\.reason\.json")


def prune(inbox: Inbox, *, now: float) -> None:
    """Bound what one contributor's folder holds; `now`: unix seconds. May be killed anywhere. Errors: OSError."""
    most = inbox.limits
    _delete(file for file in inbox.files("tmp") if file.arrived_at < now - ABANDONED_S)
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


def _delete(files: Iterable[InboxFile]) -> None:
    for file in files:
        file.path.unlink(missing_ok=True)
