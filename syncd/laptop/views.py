"""What people see of a client and its mirror, as lines. Nothing here decides anything."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from anchorleg.words import counted, roughly, sized
from syncd.laptop.exchange import ExchangeCounts
from syncd.laptop.mirror import Arrival
from syncd.laptop.status import ClientStatus, MirrorView, PolicyView
from syncd.outbox import SILENT_AFTER_S
from syncd.shared.manifest import Manifest

#: Each slot's new policies are told at most this often: one each 3 s would be 29,000 lines a day.
LINE_EVERY_S = 60.0


def _seconds(seconds: float) -> str:
    """`0.18 s`, `12 s`."""
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


def headline(view: MirrorView) -> str:
    """One line: whether a client keeps the mirror, and how it stands with the other side."""
    word, now = view.client, view.looked_at
    if not view.runs:
        last = f" (the last one ended {roughly(now - word.written_at)} ago)" if word is not None else ""
        why = f"; it ended with: {word.error}" if word is not None and word.error else ""
        return f"no syncd runs for {view.folder}{last}; start one with `syncd watch`{why}"
    if word is None or word.pid != view.pid:
        return f"`syncd {view.verb}` (pid {view.pid}) works on {view.folder}"
    if now - word.written_at > SILENT_AFTER_S:
        return (
            f"syncd (pid {word.pid}) has said nothing for {roughly(now - word.written_at)}: it is stopped or "
            f"stuck, or the disk is full; its last state was {word.state}"
        )
    return f"{word.state}{' ' if word.state in {'offline', 'connecting'} else ': '}{_standing(word, now)}"


def _standing(word: ClientStatus, now: float) -> str:
    """What `headline` says after the state."""
    since = roughly(now - word.since)
    if word.state == "offline":
        again = "" if word.next_try_at is None else f"; trying again in {roughly(word.next_try_at - now)}"
        return f"for {since}{again}: {word.error}"
    if word.state == "connecting":
        return f"to {word.remote}, for {since}" + (f"; before that: {word.error}" if word.error else "")
    trip = f", {1000 * word.rtt_s:.0f} ms round trip" if word.rtt_s is not None else ""
    return f"{word.remote} by {word.transport}{trip}, for {since}"


def checked(slot: PolicyView) -> str:
    """What is known of the policy's soundness here: sums and shapes always; its actions where an actor tried it."""
    if slot.played is None:
        return "sums"
    return "actions too" if slot.played.ok else "actions differ"


def status_lines(view: MirrorView) -> list[str]:
    """All of it: the headline, a line a slot, the rest."""
    lines = [headline(view)]
    if view.runs and not view.slots:
        lines.append("no policy yet: a run publishes one with its first checkpoint")
    offset_s = (view.client.clock_offset_s or 0.0) if view.client is not None else 0.0
    for slot in view.slots:
        score = f", {slot.score}" if slot.score is not None else ""
        lines.append(
            f"{slot.run_id}/{slot.slot} {slot.version}, step {slot.step:,}{score}, made "
            f"{roughly(view.looked_at + offset_s - slot.created_at)} ago, {sized(slot.bytes)}, checked: {checked(slot)}"
        )
    return lines + details(view)


def details(view: MirrorView) -> list[str]:
    """The lines below the slots: traffic, the way out, what is wrong."""
    lines = []
    word = view.client
    if word is not None:
        median, worst = word.latency.quantile(0.5), word.latency.quantile(0.95)
        speed = ""
        if median is not None and worst is not None:
            speed = f"; from publication to here ≈ {_seconds(median)} (95 %: {_seconds(worst)})"
        lines.append(f"received: {counted(word.policies, 'policy', 'policies')}{speed}")
        lines.append(f"line: {sized(word.bytes_in)} in, {sized(word.bytes_out)} out")
    counts = view.contributions
    if view.waiting or counts.sent or counts.refusals:
        name = f" as {word.contributor}" if word is not None and word.contributor else ""
        lines.append(
            f"experience{name}: {view.waiting:,} waiting ({sized(view.waiting_bytes)}), {counts.sent:,} sent, "
            f"{_judged(counts.accepted, counts.refused)}"
        )
    lines += [
        f"note: {slot.run_id}/{slot.slot} {slot.version} cannot be used here: {slot.played.error}"
        for slot in view.slots
        if slot.played is not None and not slot.played.ok
    ]
    if word is not None and view.runs:
        lines += [f"note: {trouble}" for trouble in word.troubles]
    return lines


def policy_line(manifest: Manifest, received_bytes: int, latency_s: float | None = None) -> str:
    """One policy that has arrived."""
    score = f", {manifest.score}" if manifest.score is not None else ""
    speed = f", ≈ {_seconds(max(0.0, latency_s))} after its publication" if latency_s is not None else ""
    where = f"{manifest.run_id}/{manifest.slot} {manifest.version}"
    return f"{where}: step {manifest.step:,}{score}, {sized(received_bytes)}{speed}"


def moved_lines(counts: ExchangeCounts, *, pull: bool, push: bool, waiting: int, remote: str) -> list[str]:
    """What one pass has done."""
    lines = []
    if pull:
        policies, current = len(counts.policies), counts.offered - len(counts.policies)
        if not counts.offered and not counts.curves:
            lines.append(f"{remote} has no policy yet: a run publishes its first one when it starts")
        elif not counts.moved - counts.sent:
            lines.append("nothing fetched" if counts.troubles else f"{counted(counts.offered, 'slot')} up to date")
        else:
            parts = [counted(policies, "policy", "policies")] if policies else []
            parts += [f"{counted(counts.curves, 'part')} of curves"] if counts.curves else []
            here = f"; {counted(current, 'slot')} up to date" if current > 0 else ""
            lines.append(f"{' and '.join(parts)} fetched, {sized(counts.bytes)}{here}")
    if push:
        left = f"; {counted(waiting, 'segment')} still waiting" if waiting else ""
        is_idle = not (counts.sent or counts.refused or waiting)
        lines.append("nothing to send" if is_idle else f"{counted(counts.sent, 'segment')} sent{left}")
    if counts.accepted or counts.refused:
        lines.append(f"verdicts: {_judged(counts.accepted, counts.refused)}")
    return lines


def _judged(accepted: int, refused: Mapping[str, int]) -> str:
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(refused.items()))
    return f"{accepted:,} accepted, {sum(refused.values()):,} refused" + (f" ({reasons})" if reasons else "")


class ArrivalLines:
    """Tells of arriving policies: each slot's first at once, then one line in `LINE_EVERY_S`."""

    def __init__(self, say: Callable[[str], None], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._say, self._monotonic = say, monotonic
        self._told_at: dict[tuple[str, int], float] = {}

    def arrived(self, arrival: Arrival, latency_s: float | None) -> None:
        """One more policy."""
        if arrival.manifest is None:
            return
        slot = (arrival.manifest.run_id, arrival.manifest.slot)
        if self._monotonic() - self._told_at.get(slot, float("-inf")) >= LINE_EVERY_S:
            self._told_at[slot] = self._monotonic()
            self._say(policy_line(arrival.manifest, arrival.bytes, latency_s))
