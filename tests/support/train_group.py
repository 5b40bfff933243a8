"""`python train_group.py RUN_DIR SLOT ATTEMPTS FIELDS [JOURNAL]`: attempts of one slot of a group, on point masses.

ATTEMPTS is a JSON list; each object maps a vector step to a signal, or to `"wait"`: until another slot's episode was
read, or to `"adopt"`: now another's learner is to be taken over, or to `"mix"`: until another's weights were found;
`"score"` is what its evaluations come to. Own rows speak against no mean. With JOURNAL (lines of contributions.jsonl)
the first attempt takes these again from RUN_DIR/kept, where all that any slot takes is kept for good. Prints a JSON
list of exit codes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from train_contributed import wait_until
from train_point_mass import Interrupted, Judged, in_a_process_of_its_own, judge, section

from anchorleg.files import write_bytes
from anchorleg.job import Job
from syncd import store
from trainer.envs.spaces import STATE
from trainer.envs.step import Step, VectorSpec
from trainer.errors import TrainerError
from trainer.evaluation.process import EvaluationRequest
from trainer.sharing import journal as intakelog
from trainer.sharing import peers, reader
from trainer.sharing.copies import Copies
from trainer.sharing.recorder import Dispatch
from trainer.state import State
from trainer.training.begin import run
from trainer.training.features.inflow import adopting, intake, mixing
from trainer.training.features.progress import TrainingDisplay

#: As `point_mass.HORIZON`, which is what its episodes have.
HORIZON = 20
#: Those of this process.
READERS: list[peers.PeerReader] = []
ADOPTIONS: list[Watched] = []
MIXES: list[mixing.Mixes] = []


class Framed(Interrupted):
    """Point masses whose observations hold the frame before, and whose rewards lie where Meta-World's do."""

    def __init__(self, spec: VectorSpec, plan: dict[str, Any], place: store.SlotPlace) -> None:
        super().__init__(spec, {step: what for step, what in plan.items() if str(what).startswith("SIG")})
        self.plan, self.place_of_policies = plan, place
        self.before = np.zeros(self.num_envs)

    def step(self, actions: Any) -> Step:
        if self.steps == 0:  # what is done before a policy is published nobody can be given
            wait_until(lambda: store.newest(self.place_of_policies) is not None)
        if self.plan.get(str(self.steps + 1)) == "wait":
            wait_until(lambda: READERS[-1]._seen)  # also where that was taken already: else both might wait for more
        if self.plan.get(str(self.steps + 1)) == "adopt":
            ADOPTIONS[-1].decide()
            wait_until(lambda: ADOPTIONS[-1].found is not None)
        if self.plan.get(str(self.steps + 1)) == "mix":
            wait_until(lambda: found_by(MIXES[-1]))
        self.before = self.place.copy()
        done = super().step(actions)
        return replace(done, reward=np.clip(done.reward, 0, 10))

    def snapshot(self) -> State:
        found = super().snapshot()
        return State({**found.tensors, "before": self.before.copy()}, found.numbers)

    def _begin(self, i: int) -> None:
        super()._begin(i)
        self.before[i] = self.place[i]

    def _obs(self) -> Any:
        obs = super()._obs()
        obs[STATE][:, 18] = self.before
        return obs


def watched(self: peers.PeerReader, *args: Any, **more: Any) -> None:
    _made(self, *args, **more)
    READERS.append(self)


class Watched(adopting.Adoptions):
    """Looks whom to follow when it is told to: at an evaluation's end it would be by then, or a little later."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.held: list[tuple[Any, int]] = []
        ADOPTIONS.append(self)

    def evaluated(self, row: Any, step: int) -> None:
        self.held.append((row, step))

    def decide(self) -> None:
        *before, (row, step) = self.held
        self._new.update({one["step"]: one for one, _ in before})
        super().evaluated(row, step)


def kept_mixes(self: mixing.Mixes, *args: Any) -> None:
    _mixes_made(self, *args)
    MIXES.append(self)


def found_by(mixes: mixing.Mixes) -> bool:
    """Whether weights of another slot were found, also where they are mixed in by now; else it is looked again. They
    are known a moment before they are at hand.
    """
    if not mixes._known:
        mixes.ask()
    return bool(mixes._known) and mixes.is_idle


def scored(score: float | None) -> Callable[[EvaluationRequest], Judged]:
    """As `judge`; with a `score`, that is what comes out."""

    def begin(request: EvaluationRequest) -> Judged:
        result = judge(request).result
        if score is not None:
            result = replace(result, success=dict.fromkeys(result.success, score), mean_success=score)
        return Judged(result)

    return begin


def kept(self: Copies, data: bytes) -> str:
    sha256 = _keep(self, data)
    folder = self._job.run_dir / "kept"
    folder.mkdir(exist_ok=True)
    write_bytes(folder / sha256, data)  # whole, whichever process is killed while slots keep the same
    return sha256


_made, _keep, _mixes_made = peers.PeerReader.__init__, Copies.keep, mixing.Mixes.__init__


def attempt(run_dir: Path, slot: int, plan: dict[str, Any], fields: dict[str, Any]) -> int:
    job = Job.standalone(run_dir, slot)
    if (run_dir / "kept").is_dir() and not (run_dir / "slots/1").exists():  # a replay
        shutil.copytree(run_dir / "kept", job.attempt_dir / "taken", dirs_exist_ok=True)
    job.listen()
    place = store.Shared(job.shared_dir).slot(job.run_id, slot)
    given = {"seed": slot, "horizon": HORIZON, "group": {"rows": True, "every": 1}, **fields}
    try:
        return run(
            job,
            section(**given),
            TrainingDisplay(),
            make_envs=lambda spec, _workers: Framed(spec, plan, place),
            evaluator=scored(plan.get("score")),
        )
    except TrainerError as error:
        print(error, flush=True)
        return error.exit_code


def main(run_dir: Path, slot: int, attempts: list[dict[str, Any]], fields: dict[str, Any], journal: Path | None) -> Any:
    intake.TAKE_EVERY_S, peers.ROUND_S, reader.ROUND_S = 0.0, 0.005, 0.005
    peers.PeerReader.__init__ = watched  # type: ignore[method-assign]
    mixing.Mixes.__init__ = kept_mixes  # type: ignore[method-assign]
    mixing.is_harmless = lambda *_: True
    Copies.keep = kept  # type: ignore[method-assign]
    intake.Adoptions = Watched  # type: ignore[misc]
    assert Dispatch.close.__defaults__ == (1.0,)
    Dispatch.close.__defaults__ = (30.0,)  # on a slow machine, too, what was given is there when an attempt has ended
    if journal is not None:
        schedule = [intakelog._entry(json.loads(line)) for line in journal.read_text().splitlines()]
        begins = intakelog.Inherited(later=schedule)
        intake.inherited = lambda _job, start: begins if start is None else intakelog.inherited(_job, start)
    return [in_a_process_of_its_own(partial(attempt, run_dir, slot, plan, fields)) for plan in attempts]


if __name__ == "__main__":
    signal.alarm(800)
    arguments = (Path(sys.argv[1]), int(sys.argv[2]), json.loads(sys.argv[3]), json.loads(sys.argv[4]))
    codes = main(*arguments, Path(sys.argv[5]) if len(sys.argv) > 5 else None)
    print(json.dumps(codes), flush=True)
    os._exit(0)
