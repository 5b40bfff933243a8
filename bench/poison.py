"""Can one contributor spoil a training? Success with nobody, with an honest contributor, and with lying ones.

`python bench/poison.py [SEEDS] [PROCESSES]` (5 seeds, one at a time; seven minutes of a core for each of the
trainings). Preset `tiny` on reach. A contributor plays as many steps as fill others' whole share of a batch (30 %),
with the learner's own policy but for two, and its segments go through the real inbox and the real judge:

* nobody: no contributor;
* honest: the control arm, it sends what happened;
* inverted: every reward r is sent as 10 - r;
* patient: it sends what happened forty times, then rewards of 10;
* shifted: it sends one true episode again and again, moved by up to 9.5 mm, which the simulation believes;
* fleeing: true episodes of a hand that goes where the goal is not, with the noise of a policy;
* still: true episodes of a hand that hardly moves;
* believed: as inverted, and named in `trusted_contributors`, so that nothing is checked: what the check prevents.

A training's success is the mean of its last two evaluations, over 50 fixed goals, at nine tenths and at the end. The
claims, from before the runs: with a liar, or with experience that brings nothing, the mean is within 0.05 of nobody's,
with an honest one not below it (by more than 0.05). One row a training goes to poison.csv when it is complete;
trainings that are in it are not made again. poison_summary.csv has the means, and the mean and standard error of the
differences to nobody's with the same seed.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from pathlib import Path

import figures
import numpy as np
import torch
from learners import act_deterministic

from anchorleg.job import Job
from syncd import store
from trainer.config.section import TrainingSection, resolve
from trainer.config.training import Training
from trainer.envs.spaces import F32
from trainer.envs.step import VectorSpec
from trainer.envs.suite import spaces_of, suite_of
from trainer.envs.vector import VectorEnv
from trainer.evaluation.protocol import evaluate
from trainer.sharing import ingest
from trainer.sharing.recorder import Recorder, SegmentOrigin
from trainer.sharing.segment import Segment, encode, name_of
from trainer.sharing.spotcheck import Resimulator
from trainer.training.features.inflow import intake
from trainer.training.features.inflow.intake import Intake
from trainer.training.run import TrainingRun, advance, as_begun

SEEDS, PROCESSES = 5, 1
HONEST_FIRST = 40
#: The simulation believes 10 mm.
SHIFT = 9.5e-3


def _paid(segment: Segment) -> Segment:
    return replace(segment, reward=np.full_like(segment.reward, 10))


def _shifted(segment: Segment) -> Segment:
    """The hand elsewhere: in the frame now and in the one before."""
    by = np.random.default_rng(segment.episode).uniform(-SHIFT, SHIFT, 3).astype(np.float32)
    obs = segment.obs.copy()
    obs[:, :3] += by
    obs[:, 18:21] += by
    return replace(segment, obs=obs)


def _as_is(segment: Segment) -> Segment:
    return segment


#: What each makes of an episode that happened.
LIES = {
    "nobody": None,
    "honest": _as_is,
    "patient": lambda segment: _paid(segment) if segment.episode >= HONEST_FIRST else segment,
    "believed": lambda segment: replace(segment, reward=10 - segment.reward),
    "inverted": lambda segment: replace(segment, reward=10 - segment.reward),
    "shifted": _shifted,
    "fleeing": _as_is,
    "still": _as_is,
}
#: Steps of the contributor for ten of the learner: 3 to 7 fills 30 %, and some lie in wait.
OF_TEN = 5
#: A policy is published for the contributor this often, in the learner's steps.
PUBLISH_EVERY = 200
SUMMARY = ["contributor", "seeds", "success", "minus nobody's", "standard error"]
HEAD = ["contributor", "seed", "success", "accepted", "refused", "checked", "weight"]


class Contributor:
    """Plays beside the learner with its policy, and puts what it saw, or says that it saw, into the inbox."""

    def __init__(self, job: Job, training: Training, kind: str) -> None:
        self.kind, self.lie = kind, LIES[kind]
        self.first: Segment | None = None
        self.moves = np.random.default_rng(training.seed)
        self.envs = VectorEnv(VectorSpec(suite_of(training), 1, training.seed + 1_000_000))
        self.noise = torch.Generator().manual_seed(training.seed)
        self.observed = self.envs.reset()
        self.recorder = Recorder(SegmentOrigin(job.run_id, 0, spaces_of(training), "ab" * 8), 1)
        self.folder = store.Inbox.of(store.Shared(job.shared_dir), "friend").place("new", job.run_id, 0)
        self.folder.mkdir(parents=True)

    def step(self, state: TrainingRun, version: int) -> None:
        """One step with the learner's present policy, called version `version`."""
        obs = self.observed.obs
        actions = self.act(state)
        step = self.envs.step(actions)
        for segment in self.recorder.add(obs, actions, step, (0, version)):
            self.send(segment)
        self.observed = replace(self.observed, obs=step.obs, task=step.next_task)

    def act(self, state: TrainingRun) -> F32:
        """What it does now."""
        seen = self.observed.obs["state"]
        if self.kind in ("fleeing", "still"):
            away = 10 * (seen[:, :3] - seen[:, 36:]) if self.kind == "fleeing" else np.zeros((len(seen), 3))
            noise = self.moves.normal(0, 0.3 if self.kind == "fleeing" else 0.1, (len(seen), 4))
            return (np.pad(away, [(0, 0), (0, 1)]) + noise).clip(-1, 1).astype(np.float32)
        learner = state.algorithm
        theirs, learner.noise = learner.noise, self.noise  # else a liar who is held would change the training's draws
        actions = learner.act(self.observed.obs, self.observed.task, 10**6)
        learner.noise = theirs
        return actions

    def send(self, segment: Segment) -> None:
        """Put it into the inbox, as `syncd` does."""
        assert self.lie is not None
        if self.kind == "shifted":
            self.first = self.first or segment
            segment = replace(self.first, episode=segment.episode, version=segment.version)
        data = encode(self.lie(segment))
        path = self.folder / f".{name_of(data)}"
        path.write_bytes(data)
        path.rename(self.folder / name_of(data))


def trained(kind: str, seed: int) -> dict[str, float | str | int]:
    """One training to its end."""
    torch.set_num_threads(1)
    intake.TAKE_EVERY_S = 0.0
    trusted = ("friend",) if kind == "believed" else ()
    training = resolve(TrainingSection(preset="tiny", seed=seed, device="cpu", trusted_contributors=trusted))
    suite = suite_of(training)
    spec = VectorSpec(suite, training.num_envs, seed)
    with tempfile.TemporaryDirectory() as folder, VectorEnv(spec) as envs:
        job = Job.standalone(Path(folder) / "bench", accepts_contributions=True)
        job.start_from(None)
        state = as_begun(training, torch.device("cpu"), envs)
        inside = Intake(job, training, None, lambda: Resimulator(suite))
        ingester = inside.ingester
        assert ingester is not None
        friend = Contributor(job, training, kind) if LIES[kind] is not None else None
        found, owed, version = [], 0.0, -1
        while state.step < training.total_steps:
            before = state.step
            advance(state)
            if before // PUBLISH_EVERY != state.step // PUBLISH_EVERY or version < 0:
                version += 1
                ingester.know(0, version, before)
            if friend is not None and state.step > training.algorithm.random_steps:
                owed += (state.step - before) * OF_TEN / 10
                while owed >= 1:
                    friend.step(state, version)
                    owed -= 1
                if state.step % training.env.horizon == 0:
                    ingester.one_round(ingest.JUDGED_A_ROUND)
                inside.take(state)
            for part in (0.9, 1.0):
                if before < part * training.total_steps <= state.step:
                    result = evaluate(partial(act_deterministic, state.algorithm), suite, 50)
                    assert result is not None
                    found.append(result.mean_success)
        others = state.experience.others if state.experience is not None else None
        weight = "" if others is None else f"{float(others.weights_of('friend').mean()):.2f}"
        counts = store.given_to(store.Inbox.of(store.Shared(job.shared_dir), "friend").path, job.run_id, 0)
        return {
            "contributor": kind,
            "seed": seed,
            "success": f"{statistics.mean(found):.4f}",
            "accepted": counts.accepted,
            "refused": sum(counts.refused.values()),
            "checked": counts.checked,
            "weight": weight,
        }


def missing(seeds: int, there: list[list[str]]) -> Iterator[tuple[str, int]]:
    """The trainings that are still to be made."""
    made = {(row[0], int(row[1])) for row in there}
    return ((kind, seed) for seed in range(seeds) for kind in LIES if (kind, seed) not in made)


def summary(rows: list[list[str]]) -> list[list[str]]:
    """A row for each kind, as `SUMMARY` names its columns, of the rows of poison.csv."""
    found = {kind: {row[1]: float(row[2]) for row in rows if row[0] == kind} for kind in LIES}
    told = []
    for kind, success in found.items():
        apart = [value - found["nobody"][seed] for seed, value in success.items() if seed in found["nobody"]]
        if apart:
            error = f"{statistics.stdev(apart) / len(apart) ** 0.5:.3f}" if len(apart) > 1 else "-"
            mean = statistics.mean(success.values())
            told.append([kind, str(len(success)), f"{mean:.3f}", f"{statistics.mean(apart):+.3f}", error])
    return told


def main() -> None:
    """Train, and print what came of it."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    processes = int(sys.argv[2]) if len(sys.argv) > 2 else PROCESSES
    there = figures.newest("poison")
    rows = figures.read(there)[1:] if there.exists() else []
    with ProcessPoolExecutor(processes) as pool:
        futures = [pool.submit(trained, kind, seed) for kind, seed in missing(seeds, rows)]
        for future in as_completed(futures):
            rows.append([str(future.result()[name]) for name in HEAD])
            print(*rows[-1], flush=True)
            figures.save("poison", HEAD, sorted(rows))
    summarised = summary(rows)
    figures.save("poison_summary", SUMMARY, summarised)
    for row in summarised:
        print(*row)


if __name__ == "__main__":
    main()
