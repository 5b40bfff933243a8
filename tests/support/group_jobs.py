"""`python group_jobs.py PLAN train …`: `trainer train …` as a slot of a group that a test holds, hurts and scores.

PLAN, by slot: `signals`, an object for each attempt (see `killed_between_updates.py`), and `scores`, the part of the
goals that its evaluations solve. All that a slot takes of another is kept for good in RUN_DIR/kept. No slot trains
beyond the step that RUN_DIR/held names (`held-<step>` in the attempt's folder says that it waits there): it takes what
others give, until it is asked to hand over. With `journal` (a file of lines of contributions.jsonl) an attempt that
begins from scratch takes these again from RUN_DIR/kept.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from daemons import WORK_S, wait_for
from killed_between_updates import hurt
from train_point_mass import Judged

from anchorleg.job import Job
from syncd import store
from trainer.checkpoints.checkpoint import read_manifest
from trainer.checkpoints.resume import training_of
from trainer.cli import main
from trainer.evaluation.process import EvaluationRequest
from trainer.evaluation.protocol import summarise
from trainer.sharing import journal, peers, reader
from trainer.sharing.copies import Copies
from trainer.training import begin
from trainer.training.features.inflow import adopting, intake
from trainer.training.run import TrainingRun

#: Of a vector step: so that slots are still at work while the others look for what they gave.
PACE_S = 0.01


def scored(score: float) -> Callable[[EvaluationRequest], Judged]:
    """An evaluation that is over at once: so many of the goals were solved."""

    def judge(request: EvaluationRequest) -> Judged:
        training = training_of(read_manifest(request.checkpoint))
        solved = np.zeros((len(training.env.tasks), request.goals), bool)
        solved[:, : round(score * request.goals)] = True
        lengths = np.full(solved.shape, training.env.horizon, np.float64)
        result = summarise(
            training.env.tasks, solved, solved * 1.0, lengths,
            horizon=training.env.horizon, seed=training.seed, steps=request.goals, wall_s=0.0,
        )  # fmt: skip
        return Judged(result)

    return judge


def keep_all() -> None:
    """Of what is taken, a second copy that no checkpoint removes."""
    keep = Copies.keep

    def kept(self: Copies, data: bytes) -> str:
        sha256 = keep(self, data)
        (self._job.run_dir / "kept").mkdir(exist_ok=True)
        (self._job.run_dir / "kept" / sha256).write_bytes(data)
        return sha256

    Copies.keep = kept  # type: ignore[method-assign]


def look_at_once() -> None:
    """Whom to follow is known as soon as an evaluation is: how far the training gets meanwhile is up to no machine."""
    evaluated = adopting.Adoptions.evaluated

    def looked(self: adopting.Adoptions, row: Any, step: int) -> None:
        evaluated(self, row, step)
        wait_for(lambda: self.is_idle, "the look at the others", WORK_S)

    adopting.Adoptions.evaluated = looked  # type: ignore[method-assign]


def hold(pace_s: float) -> None:
    """No more steps before this attempt has published a policy: nobody takes what came of none. Then as it says."""
    take = intake.Intake.take

    def held(self: intake.Intake, state: TrainingRun) -> None:
        job = self._job
        place = store.Shared(job.shared_dir).slot(job.run_id, job.slot)
        limit = job.run_dir / "held"
        take(self, state)
        time.sleep(pace_s)
        while job.hand_over_reason() is None and ((waits := waits_at(limit, state.step)) or not is_shown(place, job)):
            if waits:
                (job.attempt_dir / f"held-{limit.read_text().strip()}").touch()
            time.sleep(PACE_S)
            take(self, state)
            self.tell(print)

    intake.Intake.take = held  # type: ignore[method-assign]


def waits_at(limit: Path, step: int) -> bool:
    """Whether no slot is to train beyond `step`."""
    try:
        return step >= int(limit.read_text())
    except FileNotFoundError:
        return False


def is_shown(place: store.SlotPlace, job: Job) -> bool:
    """Whether a policy of this attempt was published."""
    newest = store.newest(place)
    return newest is not None and newest.version.attempt == job.attempt


def again(schedule: Path) -> None:
    """An attempt that begins from scratch takes what the file says."""
    entries = [journal._entry(json.loads(line)) for line in schedule.read_text().splitlines()]
    inherited = intake.inherited

    def scheduled(job: Job, start: Any) -> Any:
        if start is not None:
            return inherited(job, start)
        shutil.copytree(job.run_dir / "kept", job.attempt_dir / "taken")
        return journal.Inherited(later=entries)

    intake.inherited = scheduled


if __name__ == "__main__":
    plan = json.loads(sys.argv.pop(1))
    slot, attempt = int(os.environ.get("ANCHORLEG_SLOT", "0")), int(os.environ.get("ANCHORLEG_ATTEMPT", "0"))
    attempts = plan["signals"][slot]
    hurt(attempts[attempt] if attempt < len(attempts) else {})
    intake.TAKE_EVERY_S, peers.ROUND_S, reader.ROUND_S = 0.0, 0.1, 0.1
    keep_all()
    look_at_once()
    hold(0.0 if "journal" in plan else PACE_S)
    if "journal" in plan:
        again(Path(plan["journal"]))
    assert begin.run.__kwdefaults__ is not None
    begin.run.__kwdefaults__["evaluator"] = scored(plan["scores"][slot])
    main()
