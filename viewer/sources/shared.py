"""What lies in a shared folder or a mirror: policies, curves, who sends experience. Read-only."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

from anchorleg.words import printable
from syncd import store
from syncd.shared.counts import counts, last_seen
from trainer.history.read import EVALUATIONS, METRICS
from viewer.curves import MOST_TASKS, newest
from viewer.learning import Learned, learned_from
from viewer.model import AgentRow, ContributorRow, PolicyRow

#: Inboxes and manifests are many files.
SHARED_S = 5.0
#: Of each curve, which a stranger may have written: 204,800 rows of metrics, which on fifty tasks are the 1 GiB that a
#: mirror has of a slot, and 51,200 evaluations, which are all in memory at once.
MOST_CHUNKS = {METRICS: 1_600, EVALUATIONS: 400}


def manifests_of(shared: Path, run_id: str) -> tuple[store.Manifest, ...]:
    """Of the newest policy of each slot of a run. Errors: OSError."""
    places = (place for place in store.Shared(shared).slots() if place.run_id == run_id)
    return tuple(manifest for place in places if (manifest := store.newest(place)) is not None)


def slots_of(shared: Path, run_id: str) -> tuple[int, ...]:
    """Of which slots of a run anything is there. Errors: OSError."""
    return tuple(place.slot for place in store.Shared(shared).slots() if place.run_id == run_id)


def policy_rows(manifests: Sequence[store.Manifest]) -> tuple[PolicyRow, ...]:
    """A row for each. Pure."""
    return tuple(
        PolicyRow(
            slot=manifest.slot,
            version=str(manifest.version),
            step=manifest.step,
            created_at=manifest.created_at,
            bytes=manifest.blob.bytes,
            score=str(manifest.score or ""),
        )
        for manifest in manifests
    )


def agent_rows(
    manifests: Sequence[store.Manifest],
    learned: Sequence[Learned],
    at_work: Mapping[int, bool],
    names: Mapping[int, str],
    others: Mapping[int, tuple[str, ...]],
) -> tuple[AgentRow, ...]:
    """Every slot that has a policy, or is in `at_work`: whether its job runs, as far as is known. `others`:
    contributors whose agents may be watched. Pure.
    """
    published = {manifest.slot: manifest for manifest in manifests}
    training = {one.slot: newest([one.curves], "success", "") for one in learned}
    rows = []
    for slot in sorted({*published, *at_work}):
        manifest = published.get(slot)
        score = manifest.score if manifest is not None else None
        rows.append(
            AgentRow(
                slot=slot,
                name=names.get(slot, ""),
                success=score.mean_success if score is not None else None,
                training=training.get(slot),
                step=manifest.step if manifest is not None else None,
                at_work=at_work.get(slot, True),
                has_policy=manifest is not None,
                others=others.get(slot, ()),
            )
        )
    return tuple(rows)


def task_names(manifests: Sequence[store.Manifest]) -> tuple[str, ...]:
    """The tasks of a training, in its order; none where its policies do not say them. Pure."""
    for manifest in manifests:
        tasks = manifest.policy.spaces.get("tasks")
        if isinstance(tasks, list) and len(tasks) <= MOST_TASKS and all(isinstance(one, str) for one in tasks):
            return tuple(printable(str(one), most=80) for one in tasks)
    return ()


def contributors_of(shared: Path, now: float) -> tuple[ContributorRow, ...]:
    """Everybody with an inbox. Errors: OSError."""
    return tuple(_contributor(inbox, now) for inbox in store.Inbox.all_of(store.Shared(shared)))


def shown_others(shared: Path, run_id: str, now: float) -> dict[int, tuple[str, ...]]:
    """Slot → contributors whose agents play for it, and may be watched. What cannot be read has none."""
    try:
        return store.offered(store.Shared(shared), run_id, now)
    except OSError:
        return {}


def _contributor(inbox: store.Inbox, now: float) -> ContributorRow:
    total, now_held = counts(inbox.path), store.held(inbox.path, now)
    return ContributorRow(
        who=inbox.who,
        state="dropped" if inbox.is_dropped else "held" if now_held else "welcome",
        why=printable(now_held.why) if now_held else "",
        waiting=inbox.usage("new").segments,
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
        store.rows_of_curve(place, name.removesuffix(".jsonl"), parts=parts) for name, parts in MOST_CHUNKS.items()
    )
    return learned_from(place.slot, "", rows, evaluations)
