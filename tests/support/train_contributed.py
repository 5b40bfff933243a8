"""`python train_contributed.py RUN_DIR ATTEMPTS FIELDS [JOURNAL]`: attempts on point masses, and others send segments.

ATTEMPTS is a JSON list; each object maps a vector step to a signal, to `{"drop": who}`, or to a list of numbers: the
segments of the pool that are sent then, in turn by alice and by bob. A step waits until what was sent is judged, so
that it is taken there, and until it is noticed that somebody was dropped. With JOURNAL (lines of contributions.jsonl)
the first attempt takes these from the inbox again. Prints a JSON list of exit codes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from daemons import PATIENCE_S
from train_point_mass import TASKS, Interrupted, in_a_process_of_its_own, judge, section

from anchorleg.job import Job
from anchorleg.places import begin_id, run_id_of
from syncd import store
from trainer.envs.step import Step, VectorSpec
from trainer.errors import TrainerError
from trainer.sharing import ingest, reader
from trainer.sharing import journal as intakelog
from trainer.sharing.reader import Removals, Why
from trainer.sharing.segment import Segment, encode, name_of
from trainer.training.begin import run
from trainer.training.features.inflow import intake
from trainer.training.features.progress import TrainingDisplay

#: Short episodes make short segments; the point masses do not care.
HORIZON = 10
POOL = 60
SENDERS = ("alice", "bob")
#: Whose rows this process was told to take out.
NOTICED: list[str] = []
#: The files that this process has judged; what was accepted waits for the loop.
JUDGED: set[str] = set()


def made_up(run_id: str, number: int, *, version: tuple[int, int] = (0, 0)) -> Segment:
    """A whole episode of noise in the form of Meta-World's, which a judge cannot tell from an honest one."""
    rng = np.random.default_rng(number)
    frames = rng.uniform(-1, 1, (HORIZON + 2, 18)) * (np.arange(18) < 11)  # and no second object
    obs = np.concatenate([frames[1:], frames[:-1], np.broadcast_to(rng.uniform(-1, 1, 3), (HORIZON + 1, 3))], axis=1)
    return Segment(
        run_id=run_id,
        slot=0,
        task=TASKS[number % len(TASKS)],
        horizon=HORIZON,
        env=0,
        episode=number,
        actor="0" * 16,
        obs=obs.astype(np.float32),
        action=rng.uniform(-1, 1, (HORIZON, 4)).astype(np.float32),
        reward=rng.uniform(0, 10, HORIZON).astype(np.float32),
        success=np.zeros(HORIZON, np.uint8),
        terminated=np.zeros(HORIZON, np.uint8),
        truncated=np.arange(1, HORIZON + 1, dtype=np.uint8) // HORIZON,
        version=np.tile(np.array(version, np.int32), (HORIZON, 1)),
    )


def pool(run_id: str, count: int = POOL) -> list[bytes]:
    """Files of segments by the first policy of the run."""
    return [encode(made_up(run_id, number)) for number in range(count)]


def send(shared: Path, who: str, run_id: str, data: bytes, *, state: str = "new", name: str | None = None) -> Path:
    """Put a file into an inbox as `syncd` does: by a rename."""
    folder = store.Inbox.of(store.Shared(shared), who).place(state, run_id, 0)  # type: ignore[arg-type]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (name or name_of(data))
    path.with_suffix(".part").write_bytes(data)
    return path.with_suffix(".part").replace(path)


def noticing(removals: Removals, who: str, why: Why, begin: Any = Removals.begin) -> Any:
    NOTICED.append(who)
    return begin(removals, who, why)


def judging(door: ingest.Ingester, inbox: store.Inbox, path: Path, look_at: Any = ingest.Ingester._look_at) -> None:
    look_at(door, inbox, path)
    JUDGED.add(path.name)


def wait_until(condition: Any) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.002)


class Visited(Interrupted):
    """Sends segments, and its process signals, before the vector steps that they are written for."""

    def __init__(self, spec: VectorSpec, plan: dict[str, Any], job: Job, files: list[bytes]) -> None:
        super().__init__(spec, {step: what for step, what in plan.items() if isinstance(what, str)})
        self.plan, self.job, self.files = plan, job, files

    def step(self, actions: Any) -> Step:
        what = self.plan.get(str(self.steps + 1))
        shared = store.Shared(self.job.shared_dir)
        if isinstance(what, dict):
            store.Inbox.of(shared, what["drop"]).drop(by="the owner", now=time.time())
            wait_until(lambda: what["drop"] in NOTICED)
        elif isinstance(what, list):
            place = shared.slot(self.job.run_id, 0)
            wait_until(lambda: store.newest(place) is not None)
            sent = [send(shared.path, SENDERS[i % 2], self.job.run_id, self.files[i]) for i in what]
            wait_until(lambda: {path.name for path in sent} <= JUDGED)
        return super().step(actions)


def attempt(run_dir: Path, plan: dict[str, Any], fields: dict[str, Any], files: list[bytes]) -> int:
    job = Job.standalone(run_dir, accepts_contributions=True)
    job.listen()
    try:
        return run(
            job,
            section(horizon=HORIZON, trusted_contributors=SENDERS, **fields),
            TrainingDisplay(),
            make_envs=lambda spec, _workers: Visited(spec, plan, job, files),
            evaluator=judge,
        )
    except TrainerError as error:
        print(error, flush=True)
        return error.exit_code


def main(run_dir: Path, attempts: list[dict[str, Any]], fields: dict[str, Any], journal: Path | None) -> list[int]:
    intake.TAKE_EVERY_S, reader.ROUND_S = 0.0, 0.002
    Removals.begin = noticing  # type: ignore[method-assign]
    ingest.Ingester._look_at = judging  # type: ignore[method-assign]
    begin_id(run_dir)
    files = pool(run_id_of(run_dir))
    if journal is not None:
        schedule = [intakelog._entry(json.loads(line)) for line in journal.read_text().splitlines()]
        begins = intakelog.Inherited(later=schedule)
        intake.inherited = lambda _job, start: begins if start is None else intakelog.inherited(_job, start)
    return [in_a_process_of_its_own(partial(attempt, run_dir, plan, fields, files)) for plan in attempts]


if __name__ == "__main__":
    signal.alarm(800)
    arguments = (Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3]))
    codes = main(*arguments, Path(sys.argv[4]) if len(sys.argv) > 4 else None)
    print(json.dumps(codes), flush=True)
    os._exit(0)
