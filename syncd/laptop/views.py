"""What people see of a client and its mirror: tables for terminals, lines for pipes. Nothing here decides anything."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from anchorleg.words import counted, roughly, sized
from syncd.laptop.exchange import ExchangeCounts
from syncd.laptop.mirror import Arrival
from syncd.laptop.status import BUCKETS_S, ClientStatus, Latency, MirrorView, PolicyView
from syncd.outbox import SILENT_AFTER_S
from syncd.shared.manifest import Manifest

#: Below this the rare columns go, so that 80 columns stay readable.
WIDE = 110
#: In a pipe, each slot's new policies are told at most this often: one each 3 s would be 29,000 lines a day.
LINE_EVERY_S = 60.0

_STYLES = {"live": "green", "syncing": "cyan", "connecting": "cyan", "offline": "yellow", "stopped": "dim"}
_BARS = " ▁▂▃▄▅▆▇█"


def latency(seconds: float) -> str:
    """`0.18 s`, `12 s`."""
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"


def milliseconds(seconds: float) -> str:
    """`0.4 ms`, `38 ms`."""
    return f"{1000 * seconds:.1f} ms" if seconds < 0.01 else f"{1000 * seconds:.0f} ms"


def headline(view: MirrorView) -> str:
    """One line: whether a client keeps the mirror, and how it stands with the other side."""
    word, now = view.client, view.looked_at
    if not view.runs:
        last = f" (the last one ended {roughly(now - word.written_at)} ago)" if word is not None else ""
        why = f". It had ended with: {word.error}" if word is not None and word.error else ""
        return f"no syncd runs for {view.folder}{last}; start one with `syncd watch`{why}"
    if word is None or word.pid != view.pid:
        if view.verb != "watch":
            return f"`syncd {view.verb}` (pid {view.pid}) is at work on {view.folder}"
        return f"syncd (pid {view.pid}) runs for {view.folder}, and has not said anything yet"
    if now - word.written_at > SILENT_AFTER_S:
        return (
            f"syncd (pid {word.pid}) has said nothing for {roughly(now - word.written_at)}: stopped, stuck, "
            f"or the disk is full; its last word was {word.state}"
        )
    return f"{word.state}{' ' if word.state in {'offline', 'connecting'} else ': '}{standing(word, now)}"


def standing(word: ClientStatus, now: float) -> str:
    """What `headline` says after the state."""
    since = roughly(now - word.since)
    match word.state:
        case "offline":
            again = "" if word.next_try_at is None else f"; trying again in {roughly(word.next_try_at - now)}"
            return f"for {since}{again}: {word.error}"
        case "connecting":
            return f"to {word.remote}, for {since}" + (f"; before that: {word.error}" if word.error else "")
        case "syncing":
            return f"with {word.remote} by {word.transport}{unfetched(word)}"
        case _:
            trip = f", {milliseconds(word.rtt_s)} away" if word.rtt_s is not None else ""
            return f"{word.remote} by {word.transport}{trip}, for {since}{unfetched(word)}"


def unfetched(word: ClientStatus) -> str:
    """What is still to come."""
    return f", {counted(word.unfetched, 'file')} to fetch" if word.unfetched else ""


def news_way(polls_because: str) -> str:
    """How the other side comes to know of a new policy."""
    if polls_because:
        return f"looked for over there again and again ({polls_because})"
    return "told over there by the disk, at once"


def checked(slot: PolicyView) -> str:
    """What is known of the policy's soundness here: sums and shapes always; its actions where an actor tried it."""
    if slot.played is None:
        return "sums"
    return "actions too" if slot.played.ok else "actions differ"


def details(view: MirrorView) -> list[str]:
    """The lines below the table: traffic, the way out, what is wrong."""
    lines = []
    word = view.client
    if word is not None:
        median = word.latency.quantile(0.5)
        speed = ""
        if median is not None:
            worst = word.latency.quantile(0.95)
            speed = f"; from publication to here ≈ {latency(median)} (95 %: {latency(worst or median)})"
        lines.append(f"received: {counted(word.policies, 'policy', 'policies')}{speed}")
        logins = f", {counted(word.logins, 'login')}" if word.logins else ""
        span = roughly(word.written_at - word.started_at)
        lines.append(f"line: {sized(word.bytes_in)} in, {sized(word.bytes_out)} out{logins} in {span}")
        if word.transport and word.chosen_because:
            lines.append(f"way: {word.transport}, because {word.chosen_because}")
        if word.polls_because is not None:
            lines.append(f"news: {news_way(word.polls_because)}")
    counts = view.contributions
    if view.waiting or counts.sent or counts.refusals:
        name = f" as {word.contributor}" if word is not None and word.contributor else ""
        lines.append(
            f"experience{name}: {view.waiting:,} waiting ({sized(view.waiting_bytes)}), {counts.sent:,} sent, "
            f"{_judged(counts.accepted, counts.refused)}"
        )
    lines += [
        f"note: {slot.run_id}/{slot.slot} {slot.version} is not used here: {slot.played.error}"
        for slot in view.slots
        if slot.played is not None and not slot.played.ok
    ]
    if word is not None and view.runs:
        lines += [f"note: {trouble}" for trouble in word.troubles]
    return lines


def status_table(view: MirrorView, width: int) -> RenderableType:
    """The live picture of a mirror."""
    wide = width >= WIDE
    state = view.client.state if view.client is not None and view.runs else "stopped"
    parts: list[RenderableType] = [Text(headline(view), style=f"bold {_STYLES[state]}")]
    if view.slots:
        parts.append(_slots_table(view, width))
    elif view.runs:
        parts.append(Text("no policy yet: it comes with a run's first checkpoint", style="dim"))
    parts += [Text(line, style="yellow" if line.startswith("note: ") else "dim") for line in details(view)]
    if wide and view.client is not None and view.client.latency.count:
        parts.append(Text(histogram(view.client.latency), style="dim"))
    return Group(*parts)


def _slots_table(view: MirrorView, width: int) -> Table:
    """One row a slot. Where it is narrow the run's name gives way, in its middle: its end tells runs apart."""
    heads = ["run", "slot", "version", "step", "score", "age", *(["size"] if width >= WIDE else []), "checked"]
    rows = []
    for slot in view.slots:
        row = [
            slot.run_id,
            str(slot.slot),
            slot.version,
            f"{slot.step:,}",
            str(slot.score or "").removeprefix("success "),
        ]
        row.append(roughly(view.looked_at + _offset_s(view) - slot.created_at))
        rows.append([*row, *([sized(slot.bytes)] if width >= WIDE else []), checked(slot)])
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, no_wrap=True, justify="left" if head in {"run", "checked"} else "right")
    others = sum(max(len(head), *(len(row[k]) for row in rows)) + 2 for k, head in enumerate(heads) if k)
    for row in rows:
        table.add_row(_shortened(row[0], width - others), *row[1:])
    return table


def _shortened(text: str, room: int) -> str:
    """`text` in at most `room` characters (but 9 at least), cut in its middle: the 8 digits at its end stay."""
    if len(text) <= max(9, room):
        return text
    return text[: max(0, room - 9)] + "…" + text[-8:]


def status_lines(view: MirrorView) -> list[str]:
    """The same for a pipe: one line a slot, words instead of columns."""
    lines = [headline(view)]
    for slot in view.slots:
        score = f", {slot.score}" if slot.score is not None else ""
        age = roughly(view.looked_at + _offset_s(view) - slot.created_at)
        lines.append(
            f"{slot.run_id}/{slot.slot} {slot.version}, step {slot.step:,}{score}, made {age} ago, "
            f"{sized(slot.bytes)}, checked: {checked(slot)}"
        )
    return lines + details(view)


def histogram(seen: Latency) -> str:
    """The latencies as bars: `on the way: ≤0.1 s ▁ ≤0.25 s █ …`."""
    most = max(seen.buckets)
    bars = [_BARS[-(-count * (len(_BARS) - 1) // most)] for count in seen.buckets]
    names = [f"≤{bound:g} s" for bound in BUCKETS_S] + ["more"]
    return "on the way: " + "  ".join(f"{name} {bar}" for name, bar in zip(names, bars, strict=True))


def policy_line(manifest: Manifest, received_bytes: int, latency_s: float | None = None) -> str:
    """One policy that has arrived."""
    score = f", {manifest.score}" if manifest.score is not None else ""
    speed = f", ≈ {latency(max(0.0, latency_s))} after its publication" if latency_s is not None else ""
    where = f"{manifest.run_id}/{manifest.slot} {manifest.version}"
    return f"{where}: step {manifest.step:,}{score}, {sized(received_bytes)}{speed}"


def moved_lines(counts: ExchangeCounts, *, pull: bool, push: bool, waiting: int, remote: str) -> list[str]:
    """What one pass has done."""
    lines = []
    if pull:
        policies, current = len(counts.policies), counts.offered - len(counts.policies)
        if not counts.offered and not counts.curves:
            lines.append(f"nothing there yet: {remote} has no policy; a run publishes its first one when it starts")
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
    """Tells of arriving policies in a pipe: each slot's first at once, then one line in `LINE_EVERY_S`."""

    def __init__(self, say: Callable[[str], None], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._say, self._monotonic = say, monotonic
        self._told: dict[tuple[str, int], tuple[float, int]] = {}

    def arrived(self, arrival: Arrival, latency_s: float | None) -> None:
        """One more policy."""
        if arrival.manifest is None:
            return
        key = (arrival.manifest.run_id, arrival.manifest.slot)
        now = self._monotonic()
        told_at, silent = self._told.get(key, (None, 0))
        if told_at is not None and now - told_at < LINE_EVERY_S:
            self._told[key] = (told_at, silent + 1)
            return
        more = f" ({silent} more since the last line)" if silent else ""
        self._say(policy_line(arrival.manifest, arrival.bytes, latency_s) + more)
        self._told[key] = (now, 0)


def _offset_s(view: MirrorView) -> float:
    return (view.client.clock_offset_s or 0.0) if view.client is not None else 0.0
