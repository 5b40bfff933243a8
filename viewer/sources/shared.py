"""What lies in a shared folder or a mirror: policies, curves, who sends experience. Read-only."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

from anchorleg.printable import printable
from syncd import store
from syncd.shared.counts import counts, last_seen
from trainer.history.journal import EVALUATIONS, METRICS
from viewer.learning import Learned, learned_from
from viewer.model import ContributorRow, PolicyRow

#: A mirror may have 64 MiB of a slot's curves, of what a stranger wrote; so many rows are more than a training has.
MOST_CHUNKS = 400


def policies_of(shared: Path, run_id: str) -> tuple[PolicyRow, ...]:
    """The newest policy of each slot of a run. Errors: OSError."""
    found = []
    for place in store.Shared(shared).slots():
        manifest = store.newest(place) if place.run_id == run_id else None
        if manifest is not None:
            found.append(
                PolicyRow(
                    slot=place.slot,
                    version=str(manifest.version),
                    step=manifest.step,
                    created_at=manifest.created_at,
                    bytes=manifest.blob.bytes,
                    score=str(manifest.score or ""),
                )
            )
    return tuple(found)


def contributors_of(shared: Path, now: float) -> tuple[ContributorRow, ...]:
    """Everybody with an inbox. Errors: OSError."""
    return tuple(_contributor(inbox, now) for inbox in store.Inbox.all_of(store.Shared(shared)))


def _contributor(inbox: store.Inbox, now: float) -> ContributorRow:
    total, now_held = counts(inbox.path), store.held(inbox.path, now)
    return ContributorRow(
        who=inbox.who,
        state="dropped" if inbox.is_dropped else "held" if now_held else "welcome",
        why=printable(now_held.why) if now_held else "",
        waiting=inbox.usage("tmp", "new").segments,
        accepted=total.accepted,
        rows=total.rows,
        checked=total.checked,
        solved=total.solved / total.episodes if total.episodes else None,
        refused=dict(sorted(total.refused.items())),
        seen_at=last_seen(inbox.path),
    )


def curves_signature(place: store.SlotPlace) -> Hashable:
    """Changes when the slot's curves do: names, sizes and times of their files."""
    try:
        kinds = tuple(name.removesuffix(".jsonl") for name in (METRICS, EVALUATIONS))
        files = [(path.name, path.stat()) for path in sorted(place.metrics.iterdir()) if path.name.startswith(kinds)]
    except OSError:
        return ()
    return tuple((name, stat.st_size, stat.st_mtime_ns) for name, stat in files)


def learned_of(place: store.SlotPlace) -> Learned:
    """A slot's curves as they were published. Errors: OSError, `viewer.learning.NOT_A_TRAININGS`."""
    rows, evaluations = (
        store.read_metrics(place, name.removesuffix(".jsonl"), parts=MOST_CHUNKS) for name in (METRICS, EVALUATIONS)
    )
    return learned_from(place.slot, "", rows, evaluations)
