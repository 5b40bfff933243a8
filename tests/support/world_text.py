"""What happens to a run on a fake scheduler, as one line of text (`one_run.World`), so that a case is a row of a table.

A table (`tests/unit/orchestrator/tables/world.txt`) has what a case says | config | steps, parted by `;`:

* `tick 30`: 30 s later; `tick 60 x24`: so often. `job 1 running`, `job 0 CANCELLED`, `job 0 waiting reason=…`: what the
  queue shows of the second, the first submission. `claims 1 a2 exit=75 asked=SIGTERM`: it claims attempt 2, and ends.
* `sbatch quota "words" x3`: what the next submissions are answered: `quota`, `temporary`, `permanent`, `unclear`,
  `silent`, or an id. `queue down`, `queue up`, `queue empty`, `others 2`.
* `wish stop 100`, `ask pause 0`, `start`, `new controller`.
* `= submitted=2, signalled=["wake 101"]`: what is to be by now, of the world; `= slot failed, why~part`: of its slots,
  as in `slot_text`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from builders import a_wish
from one_run import World
from slot_text import Tick, compared, fields_of, split, words_of

from orchestrator.executors.base import JobState, SubmitOutcome, SubmitRefused, Submitted, Uncertain
from orchestrator.hosts.asking import ask_slots
from orchestrator.run.ledger import write_control


def play(path: Path, config: str, steps: str) -> None:
    """Do the steps of a case. Errors: AssertionError with what is and what was to be."""
    world = World(path, **(json.loads(config) if config else {}))
    for step in split(steps, ";"):
        first, *words = words_of(step)
        times = int(words.pop()[1:]) if words and words[-1][0] == "x" and words[-1][1:].isdigit() else 1
        for _ in range(times):
            _do(world, first, words, step)


def _do(world: World, first: str, words: list[str], step: str) -> None:
    cluster = world.cluster
    match first, words:
        case "=", ["slot", *_]:
            told = step.strip().removeprefix("=").strip().removeprefix("slot")
            expected, found = compared(told, world.ledger, [], Tick(at=world.time, control=a_wish()))
            assert found == expected, step
        case "=", _:
            expected = fields_of([part.strip() for part in split(step.strip().removeprefix("="), ",")])
            assert {name: _of_world(world, name) for name in expected} == expected, step
        case "tick", _:
            world.tick(after=float(words[0]) if words else 0.0)
        case "job", [which, state, *more]:
            shown = JobState.PENDING if state == "waiting" else JobState.ENDED if state.isupper() else JobState(state)
            raw = {"raw": state} if state.isupper() else {}
            world.job_shows(shown, int(which), **raw, **fields_of(more))
        case "claims", _:
            fields = fields_of([word for word in words if "=" in word])
            which = next((int(word) for word in words if word.isdigit()), -1)
            attempt = next((int(word[1:]) for word in words if word[0] == "a" and word[1:].isdigit()), 0)
            code = fields.pop("exit", None)
            world.job_claims(attempt, exit_code=code, which=which, **fields)
        case "sbatch", [kind, *said]:
            cluster.answers.append(_answer(kind, json.loads(said[0]) if said else ""))
        case "queue", ["empty"]:
            cluster.rows.clear()
        case "queue", [state]:
            cluster.error = "down" if state == "down" else None
        case "others", [count]:
            cluster.others = int(count)
        case "wish", [wish, *grace]:
            by = "start" if wish == "run" else "stop"
            grace_s = float(grace[0]) if grace else 180.0
            write_control(world.run_dir, wish, now=world.time, by=by, grace_s=grace_s)  # type: ignore[arg-type]
        case "ask", [kind, *slots]:
            priority = int(slots.pop()) if kind == "priority" else None
            ask_slots(world.run_dir, kind, slots, priority)  # type: ignore[arg-type]
        case "start", _:
            world.controller.reactivate()
        case "new", _:
            world.controller = world.new_controller()
        case _:
            raise AssertionError(step)


def _answer(kind: str, said: str) -> SubmitOutcome:
    if kind.isdigit():
        return Submitted(job_id=kind)
    if kind in {"unclear", "silent"}:
        return Uncertain(why=said, silent=kind == "silent")
    return SubmitRefused.model_validate({"kind": kind, "words": said})


def _of_world(world: World, name: str) -> Any:
    match name:
        case "submitted":
            return len(world.cluster.submitted)
        case "tokens":
            return [token.rpartition("-")[0] for token in world.cluster.submitted]
        case "states":
            return [str(state) for state in world.states()]
        case "signalled":
            return [" ".join([what, *ids]) for what, ids in world.cluster.signalled]
        case "told":
            return [kind for kind, _ in world.told]
        case "asked":
            return world.cluster.asked
        case "after":
            return [request.after for request in world.cluster.requests]
        case "over":
            return world.controller.over
        case "hold":
            return (world.run_dir.slot(0) / "hold").exists()
        case "handed":
            return [(world.run_dir.job(token) / "hand-over").exists() for token in world.cluster.submitted]
        case _:
            return getattr(world.ledger, name)
