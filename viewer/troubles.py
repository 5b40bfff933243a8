"""What a person should know of a run, each with what to type. Pure."""

from __future__ import annotations

import re
import shlex

from orchestrator.screens.cells import slots_words, stale_words
from orchestrator.screens.runview import RunView, SlotView
from orchestrator.screens.timeline import clock
from syncd.laptop.status import MirrorView
from syncd.laptop.views import headline
from viewer.model import Trouble


def troubles_of(view: RunView, now: float) -> tuple[Trouble, ...]:
    """Of the run first, then of its slots; slots of one mind share a line."""
    return (*_of_run(view, now), *_of_slots(view))


def _of_run(view: RunView, now: float) -> list[Trouble]:
    start = f"orchestrator start {view.run_name}"
    found = []
    if view.state == "no controller":
        found.append(Trouble(words="No controller looks after this run: no new job is submitted.", command=start))
    elif view.state == "stopping" and view.controller is None:
        words = "The run is to stop, and no controller sees to it."
        found.append(Trouble(words=words, command=f"orchestrator stop {view.run_name}"))
    if view.stale is not None:
        words = _sentence(stale_words(view.stale, now, view.run_dir or "the run folder"))
        command = f"orchestrator status {view.run_name}"
        if view.stale.free_bytes is not None:  # a laptop is not told the folder
            du = "du -sh --inodes" if view.stale.out_of_inodes else "du -sh"
            command = f"{du} {shlex.quote(view.run_dir)}/*" if view.run_dir else ""
        found.append(Trouble(words=words, command=command))
    if view.blind_since is not None:
        words = f"The queue has not been seen since {clock(view.blind_since, now)}: {view.blind_error}. "
        found.append(
            Trouble(words=words + "Nothing is submitted meanwhile; it is asked again and again.", urgent=False)
        )
    for node in view.excluded_nodes:
        words = f"No job goes to node {node.node} until {clock(node.until, now)}: {node.deaths} died early on it."
        found.append(Trouble(words=words, urgent=False))
    return found


def _of_slots(view: RunView) -> list[Trouble]:
    alike: dict[tuple[str, str, bool], list[int]] = {}
    for slot in view.slots:
        for words, command, urgent in _of_slot(slot, view.run_name):
            alike.setdefault((words, command, urgent), []).append(slot.slot)
    found = []
    for (words, command, urgent), slots in alike.items():
        who = slots_words(slots)
        line = command.replace("{slot}", str(slots[0]))
        found.append(Trouble(words=f"{who[:1].upper()}{who[1:]}: {words}", command=line, urgent=urgent))
    return found


def _of_slot(slot: SlotView, name: str) -> list[tuple[str, str, bool]]:
    """`{slot}` in a command stands for the first of the slots that share it."""
    found = []
    if slot.state == "failed":
        found.append(
            (
                f"given up: {slot.why or slot.last_cause or 'its jobs failed'}",
                f"orchestrator logs {{slot}} {name}",
                True,
            )
        )
    elif slot.state == "paused":
        by_resume = "resume" in slot.next
        command = f"orchestrator resume {{slot}} --run {name}" if by_resume else f"orchestrator start {name}"
        found.append((f"paused: {slot.why or 'a person asked for it'}", command, True))
    elif slot.state == "stalled":
        found.append(("its program reports nothing new", f"orchestrator logs {{slot}} {name}", True))
    elif slot.state in {"uncertain", "blind"}:
        found.append((f"{slot.state}: {slot.why}", f"orchestrator explain {{slot}} {name}", False))
    elif slot.state == "pending" and slot.kind == "for ever":
        found.append((f"its job can never run: {slot.why}", f"orchestrator explain {{slot}} {name}", True))
    elif slot.state == "waiting" and slot.kind == "for ever":
        words = re.sub(r"^job \S+ ", "its job ", slot.why)  # so that slots of one mind share a line
        found.append((f"put off: {words}", f"orchestrator explain {{slot}} {name}", True))
    elif slot.failures:
        cause = f"failure {slot.failures} of {slot.failure_budget} in a row" + (
            f": {slot.last_cause}" if slot.last_cause else ""
        )
        found.append((cause, f"orchestrator logs {{slot}} {name}", True))
    if slot.warning:
        found.append((slot.warning, "", True))
    return found


def troubles_of_mirror(view: MirrorView) -> tuple[Trouble, ...]:
    """Of a laptop's copy: nobody brings news, or what the client said."""
    word = view.client
    found = []
    if not view.runs:
        found.append(Trouble(words=_sentence(headline(view).partition(";")[0]), command="syncd watch"))
    elif word is not None and word.state in {"offline", "connecting"} and word.error:
        found.append(
            Trouble(words=f"No connection to {word.remote}: {word.error}", command="syncd doctor", urgent=False)
        )
    found += [Trouble(words=words, urgent=False) for words in (word.troubles if word is not None else ())]
    found += [
        Trouble(words=f"Slot {slot.slot} of {slot.run_name}: its actions differ here: {slot.played.error}", urgent=True)
        for slot in view.slots
        if slot.played is not None and not slot.played.ok
    ]
    return tuple(found)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}" + ("" if words.endswith(".") else ".")
