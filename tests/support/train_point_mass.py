"""`python train_point_mass.py RUN_DIR '[{"61": "SIGTERM"}, {}]' '{"total_steps": 900}'`: attempts on point masses.

One attempt for each object of the list, which maps a vector step to the signal that the attempt gets there, or
wandb's service (`"wandb SIGSTOP"`); the last object is laid over a small training section. Each attempt is a process of
its own, forked after the slow imports and before torch has computed anything. Prints a JSON list of exit codes
(negative: the signal that killed it).

With FLUSH_S in the environment W&B has so many seconds at the end: for a server that answers.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from daemons import wait_for
from point_mass import PointMasses
from suites import act_deterministic, learner_of

from anchorleg.job import Job
from trainer.checkpoints.checkpoint import POLICY, read_manifest, read_nets
from trainer.config.section import TrainingSection, resolve
from trainer.config.training import Training
from trainer.envs.spaces import STATE
from trainer.envs.step import Step, VectorSpec
from trainer.errors import TrainerError
from trainer.evaluation.process import EvaluationRequest
from trainer.evaluation.protocol import Evaluation, summarise
from trainer.training.begin import run
from trainer.training.features import rows
from trainer.training.features import wandb as curves
from trainer.training.features.progress import TrainingDisplay

TASKS = ("reach-v3", "push-v3", "door-open-v3")
SMALL: dict[str, Any] = {
    "preset": "debug",
    "tasks": TASKS,
    "num_envs": 4,
    "total_steps": 1200,
    "batch_size": 16,
    "buffer_size": 300,
    "actor_hidden": (16,),
    "critic_hidden": (16,),
    "random_steps": 90,
    "updates_per_step": 0.3,
    "checkpoint_interval": 100,
    "metrics_interval": 70,
    "evaluation_interval": 300,
    "evaluation_goals": 2,
    "num_workers": 0,
}


def section(**fields: Any) -> Training:
    return resolve(TrainingSection(**{**SMALL, **fields}))


class Interrupted(PointMasses):
    """Sends its own process the signals of `signals`, each before the vector step that it is written for."""

    def __init__(self, spec: VectorSpec, signals: dict[str, str]) -> None:
        super().__init__(spec)
        self.signals = signals
        self.steps = 0

    def step(self, actions: Any) -> Step:
        self.steps += 1
        if str(self.steps) in self.signals:
            *whom, name = self.signals[str(self.steps)].split()
            if whom:
                wait_for(lambda: list(curves.services()), "wandb's service")
            for pid in curves.services() if whom else (os.getpid(),):
                os.kill(pid, signal.Signals[name])
        return super().step(actions)


class Judged:
    """An evaluation that is over as soon as it has begun."""

    words = ""

    def __init__(self, result: Evaluation) -> None:
        self.result = result

    def poll(self) -> Evaluation | None:
        return self.result

    def wait(self, seconds: float) -> None:
        pass

    def end(self) -> None:
        pass


def judge(request: EvaluationRequest) -> Judged:
    """A deterministic stand-in for an evaluation: which way the greedy policy steps from the middle of the line."""
    manifest = read_manifest(request.checkpoint)
    training = Training.model_validate(manifest.training)
    learner = learner_of(training)
    nets = read_nets(request.checkpoint, manifest)
    learner.policy.load_state_dict({name.removeprefix(POLICY): tensor for name, tensor in nets.items()})
    tasks, goals = training.env.tasks, request.goals
    actions = act_deterministic(learner, {STATE: np.zeros((len(tasks), 39), np.float32)}, np.arange(len(tasks)))
    returns = np.repeat(actions[:, :1], goals, 1).astype(np.float64)
    solved = returns > 0
    return Judged(
        summarise(
            tasks, solved, returns, returns, horizon=training.env.horizon, seed=training.seed, steps=goals, wall_s=0.0
        )
    )


def attempt(run_dir: Path, signals: dict[str, str], fields: dict[str, Any]) -> int:
    """The exit code of one attempt, in this process."""
    job = Job.standalone(run_dir)
    job.listen()
    try:
        training = section(**fields)
        curves.FLUSH_S = float(os.environ.get("FLUSH_S", "1"))
        return run(
            job,
            training,
            TrainingDisplay(),
            make_envs=lambda spec, _workers: Interrupted(spec, signals),
            evaluator=judge,
            environ=os.environ,
        )
    except TrainerError as error:
        print(error, flush=True)
        return error.exit_code


def in_a_process_of_its_own(work: Callable[[], int]) -> int:
    """The exit code of `work` in a forked child."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        rows.INTERVAL_UPDATES = 50  # a few hundred updates are to be enough for diagnosed rows
        code = 70
        try:
            code = work()
        finally:
            sys.stdout.flush()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    folder, attempts, fields = Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads(sys.argv[3])
    codes = [in_a_process_of_its_own(partial(attempt, folder, signals, fields)) for signals in attempts]
    print(json.dumps(codes))
