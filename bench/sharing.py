"""What it costs the learner to share: steps a second alone, while it publishes, and while strangers also send.

`python bench/sharing.py [ROUNDS]` trains preset `tiny` (small nets: the case in which a publication weighs most) in
this process, in blocks of 200 updates that take turns: alone; publishing once a block, five times as often as a run
does; publishing and taking in four episodes of experience a second, more than the learner makes itself. Prints medians
of steps a second and of CPU seconds a step (all threads), each as a ratio to alone. Writes sharing.csv.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import figures
import torch

from anchorleg.job import Job
from syncd import store
from trainer.config.section import TrainingSection, resolve
from trainer.envs.step import VectorSpec
from trainer.envs.suite import suite_of
from trainer.envs.vector import VectorEnv
from trainer.sharing.publisher import Publisher, snapshot
from trainer.sharing.segment import encode, name_of
from trainer.sharing.spotcheck import Resimulator
from trainer.training.features.inflow.intake import Intake
from trainer.training.run import TrainingRun, advance, as_begun

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

BLOCK_UPDATES = 200
SEGMENTS_PER_S = 4
WAYS = ("alone", "publishing", "publishing, taking in")


class Friend(threading.Thread):
    """Sends an episode every quarter of a second, while it may."""

    def __init__(self, job: Job, tasks: tuple[str, ...], horizon: int) -> None:
        super().__init__(daemon=True)
        from segments_of import honest

        count = 400
        self.files = [
            encode(segment)
            for segment in honest(count, run_id=job.run_id, tasks=tasks, horizon=horizon, version=(0, 0))
        ]
        self.folder = store.Inbox.of(store.Shared(job.shared_dir), "friend").place("new", job.run_id, 0)
        self.folder.mkdir(parents=True)
        self.may = threading.Event()

    def run(self) -> None:
        """Until the files are used up."""
        for data in self.files:
            self.may.wait()
            path = self.folder / f".{name_of(data)}"
            path.write_bytes(data)
            path.rename(self.folder / name_of(data))
            time.sleep(1 / SEGMENTS_PER_S)


def block(state: TrainingRun, publisher: Publisher | None, intake: Intake | None) -> tuple[float, float]:
    """(steps a second, CPU seconds a step) over one block."""
    steps, updates = state.step, state.updates
    wall, cpu = time.perf_counter(), time.process_time()
    if publisher is not None:
        publisher.offer(snapshot(state.step, state.updates, state.algorithm.policy))
    while state.updates < updates + BLOCK_UPDATES:
        advance(state)
        if intake is not None:
            intake.take(state)
    done = state.step - steps
    return done / (time.perf_counter() - wall), (time.process_time() - cpu) / done


def main() -> None:
    """Measure and print."""
    training = resolve(TrainingSection(preset="tiny", contribution_max_lag=10**9))
    torch.set_num_threads(1)
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        job = Job.standalone(Path(folder) / "bench", accepts_contributions=True)
        job.start_from(None)
        friend = Friend(job, training.env.tasks, training.env.horizon)
        suite = suite_of(training)
        spec = VectorSpec(suite, 1, 0)
        with VectorEnv(spec) as envs:
            state = as_begun(training, torch.device("cpu"), envs)
            while not state.updates:
                advance(state)
            publisher = Publisher(job, training)
            intake = Intake(job, training, None, lambda: Resimulator(replace(suite, seed=42)))  # `honest`'s
            assert intake.ingester is not None
            intake.ingester.know(0, 0, 0)
            intake.open()
            friend.start()
            others = None
            for _ in range(figures.number(1, 20)):
                for way in WAYS[:2]:
                    found[way].append(block(state, publisher if way == WAYS[1] else None, None))
                friend.may.set()
                state.experience.others = others
                found[WAYS[2]].append(block(state, publisher, intake))
                state.experience.others, others = None, state.experience.others
                friend.may.clear()
            publisher.close()
            intake.close()
            rows_in = others.ring_rows if others is not None else 0
    report(found, rows_in)


def report(found: dict[str, list[tuple[float, float]]], rows_in: int) -> None:
    """Print, and write the CSV."""
    lines = []
    for way, measured in found.items():
        rate = statistics.median(value for value, _ in measured)
        pairs = list(zip(measured, found[WAYS[0]], strict=True))  # with the block of the same round: machines drift
        rates, cpus = (statistics.median(one[i] / alone[i] for one, alone in pairs) for i in (0, 1))
        lines.append([way, len(measured), f"{rate:.1f}", f"{rates:.3f}", f"{cpus:.3f}"])
        print(f"{way}: {rate:.1f} steps/s, {rates:.3f} of alone; CPU a step {cpus:.3f} of alone")
    print(f"{rows_in:,} rows were taken in")
    figures.save("sharing", ["what", "blocks", "steps_per_s", "of_alone", "cpu_a_step_of_alone"], lines)


if __name__ == "__main__":
    main()
