"""What a person should know of a run or of a mirror: checks, each with what to type. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from anchorleg.findings import Check, Finding, Judgement, Judgements, Level, examine, problem, warning
from anchorleg.words import counted
from orchestrator.screens.cells import slots_words, stale_words
from orchestrator.screens.runview import RunView, SlotView
from orchestrator.screens.timeline import clock
from syncd.laptop.status import MirrorView
from syncd.laptop.views import headline
from viewer.model import Trouble


class PageFacts(NamedTuple):
    """A run as it is shown at `now` (unix seconds)."""

    view: RunView
    now: float


def troubles_of(view: RunView, now: float) -> tuple[Trouble, ...]:
    """Of the run first, then of its slots; slots of one mind share a line."""
    return tuple(map(_trouble, examine(CHECKS, PageFacts(view, now))))


def troubles_of_mirror(view: MirrorView) -> tuple[Trouble, ...]:
    """Of a laptop's copy: nobody brings news, or what the client said."""
    return tuple(map(_trouble, examine(MIRROR_CHECKS, view)))


def _trouble(finding: Finding) -> Trouble:
    """A problem does not go away by itself; the advice is a command."""
    return Trouble(words=finding.found, command=finding.advice, urgent=finding.level is Level.PROBLEM)


def _controller(facts: PageFacts) -> Judgements:
    view = facts.view
    if view.state == "no controller":
        words = "This run has no controller: no new job is submitted."
        return problem(words, f"orchestrator start {view.run_name}")
    if view.state == "stopping" and view.controller is None:
        return problem("The run should stop, but has no controller to do it.", f"orchestrator stop {view.run_name}")
    return None


def _ledger(facts: PageFacts) -> Judgements:
    view, stale = facts.view, facts.view.stale
    if stale is None:
        return None
    words = _sentence(stale_words(stale, facts.now, view.run_dir or "the run folder"))
    if stale.free_bytes is None:
        return problem(words, f"orchestrator status {view.run_name}")
    du = "du -sh --inodes" if stale.out_of_inodes else "du -sh"
    # A laptop is not told the folder.
    return problem(words, f"{du} {shlex.quote(view.run_dir)}/*" if view.run_dir else "")


def _queue(facts: PageFacts) -> Judgements:
    view = facts.view
    if view.blind_since is None:
        return None
    return warning(
        f"The queue has not answered since {clock(view.blind_since, facts.now)}: {view.blind_error}. "
        "Nothing is submitted until it answers."
    )


def _nodes(facts: PageFacts) -> Iterator[Judgement]:
    for node in facts.view.excluded_nodes:
        until = clock(node.until, facts.now)
        yield warning(f"No job goes to node {node.node} until {until}: {counted(node.deaths, 'job')} died early on it.")


def _slots(facts: PageFacts) -> Iterator[Judgement]:
    alike: dict[Judgement, list[int]] = {}
    for slot in facts.view.slots:
        for judgement in _of_slot(slot, facts.view.run_name):
            alike.setdefault(judgement, []).append(slot.slot)
    for (level, words, command, _), slots in alike.items():
        who = slots_words(slots)
        yield Judgement(level, f"{who[:1].upper()}{who[1:]}: {words}", command.replace("{slot}", str(slots[0])))


def _of_slot(slot: SlotView, name: str) -> Iterator[Judgement]:
    """`{slot}` in a command stands for the first of the slots that share it."""
    logs, explain = f"orchestrator logs {{slot}} {name}", f"orchestrator explain {{slot}} {name}"
    for_ever = slot.kind == "for ever"
    if slot.state == "failed":
        yield problem(f"stopped: {slot.why or slot.last_cause or 'its jobs failed'}", logs)
    elif slot.state == "paused":
        resume = f"orchestrator resume {{slot}} --run {name}" if "resume" in slot.next else f"orchestrator start {name}"
        yield problem(f"paused: {slot.why or 'somebody paused it'}", resume)
    elif slot.state == "stalled":
        yield problem("its program reports nothing new", logs)
    elif slot.state in {"uncertain", "blind"}:
        yield warning(f"{slot.state}: {slot.why}", explain)
    elif slot.state == "pending" and for_ever:
        yield problem(f"its job can never run: {slot.why}", explain)
    elif slot.state == "waiting" and for_ever:
        yield problem(f"put off: {slot.why}", explain)
    elif slot.failures:
        cause = f": {slot.last_cause}" if slot.last_cause else ""
        yield problem(f"failure {slot.failures} of {slot.failure_budget} in a row{cause}", logs)
    if slot.warning:
        yield problem(slot.warning)


def _client(view: MirrorView) -> Judgements:
    word = view.client
    if not view.runs:
        return problem(_sentence(headline(view).partition(";")[0]), "syncd watch")
    if word is not None and word.state in {"offline", "connecting"} and word.error:
        return warning(f"No connection to {word.remote}: {word.error}", "syncd doctor")
    return None


def _clients_words(view: MirrorView) -> Iterator[Judgement]:
    return map(warning, view.client.troubles if view.client is not None else ())


def _played(view: MirrorView) -> Iterator[Judgement]:
    for slot in view.slots:
        if slot.played is not None and not slot.played.ok:
            yield problem(f"Slot {slot.slot} of {slot.run_name}: its actions differ here: {slot.played.error}")


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}" + ("" if words.endswith(".") else ".")


CHECKS: tuple[Check[PageFacts], ...] = (
    Check("controller", _controller),
    Check("ledger", _ledger),
    Check("queue", _queue),
    Check("node", _nodes),
    Check("slot", _slots),
)
MIRROR_CHECKS: tuple[Check[MirrorView], ...] = (
    Check("client", _client),
    Check("client's words", _clients_words),
    Check("actions", _played),
)
