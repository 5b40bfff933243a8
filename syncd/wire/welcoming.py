"""What a server says first to a client beside its name: how it stands, and how to come back if the line breaks."""

from __future__ import annotations

from syncd.shared.guests import Guest
from syncd.shared.holds import held
from syncd.shared.inbox import Inbox
from syncd.shared.layout import Shared, folder_names
from syncd.wire.protocol import Standing

#: Logins that a gateway takes a second. OpenSSH's `MaxStartups 10:30:100` begins to turn logins away at ten that are
#: under way, and one takes half a second where the machine is busy.
LOGINS_A_SECOND = 20
#: No more than this is asked for: a client waits no longer between two tries.
MOST_SPREAD_S = 60.0


def standing_of(inbox: Inbox | Guest | None, now: float) -> Standing | None:
    """How the contributor stands with the folder's owner; None: that could not be looked at. `now`: unix seconds."""
    try:
        own = inbox.inbox() if isinstance(inbox, Guest) else inbox
        if own is None:
            return Standing()
        used, hold = own.claimed(), held(own.path, now)
        return Standing(
            dropped=own.is_dropped, held_s=None if hold is None else hold.until - now,
            why="" if hold is None else hold.why[:500], segments=used.segments, bytes=used.bytes,
        )  # fmt: skip
    except OSError:
        return None


def spread_s(shared: Shared) -> float:
    """Over so many seconds those who contribute here should spread their logins when they lose the server at once."""
    try:
        known = len(folder_names(shared.inbox_folder))
    except OSError:
        return 0.0
    return min(MOST_SPREAD_S, known / LOGINS_A_SECOND)
