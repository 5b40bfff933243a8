"""How the contributors of one slot behave: who brings little else than what is refused is held for a while. Pure."""

from __future__ import annotations

from collections import deque

from trainer.sharing.judge import Reason

#: The last so many verdicts of one contributor are looked at, as soon as there are so many.
WINDOW, LEAST = 200, 50
#: More than this share of them refused, for what an honest sender does not do. A broken laptop is held as well.
MOST_REFUSED = 0.5
#: What happens to honest senders too: a late laptop, a policy that was cleared away, a run that was begun anew.
HARMLESS = frozenset(
    {
        Reason.OTHER_RUN, Reason.OTHER_TASK, Reason.VERSION_UNKNOWN, Reason.VERSION_LAG, Reason.DUPLICATE,
        Reason.DROPPED, Reason.UNTRUSTED, Reason.QUOTA, Reason.DEFECT,
    }
)  # fmt: skip


class Conduct:
    """The last verdicts of each contributor."""

    def __init__(self) -> None:
        self._bad: dict[str, deque[bool]] = {}

    def note(self, who: str, reason: str | None) -> str:
        """One verdict (`reason` None: accepted). A sentence where `who` must be held now, else empty; then it begins
        anew.
        """
        window = self._bad.setdefault(who, deque(maxlen=WINDOW))
        window.append(reason is not None and reason not in HARMLESS)
        refused = sum(window)
        if len(window) < LEAST or refused <= MOST_REFUSED * len(window):
            return ""
        del self._bad[who]
        return f"{refused} of its last {len(window)} segments were refused, the last one for {reason}"
