"""`python kill_publication.py FOLDER`: kill -9 before (and in the middle of) every write of a checkpoint publication.

A slot is trained to its fourth checkpoint, so that the fifth publication also clears away an old one. For each k a
copy of it is published into by a forked process that dies at its k-th contact with the disk; then a successor looks
for what to start from and publishes itself. Prints one JSON object a k.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from guillotine import Guillotine
from point_mass import PointMasses
from slot_digest import digest_of, parts_of
from suites import points
from train_point_mass import attempt, in_a_process_of_its_own, section

from anchorleg.job import Job
from trainer.checkpoints.resume import Start, find_start
from trainer.checkpoints.saver import Saver
from trainer.machine.device import set_deterministic
from trainer.training.run import advance, capture, resumed

FIELDS: dict[str, Any] = {"total_steps": 400, "evaluation_interval": 0, "keep_milestones": 1, "evaluation_goals": 0}
ORDERLY = 7


def go_on(run_dir: Path, guillotine: Guillotine) -> int:
    """The next attempt: 100 steps more, and one publication under the guillotine."""
    set_deterministic(1)  # as a job does; else each fork would import torch's compiler
    training = section(**FIELDS)
    job = Job.standalone(run_dir)
    start = find_start(job, training)
    assert start is not None
    job.start_from(start.ref)
    envs = PointMasses(points(training))
    state = resumed(training, torch.device("cpu"), envs, start.contents, start.experience)
    for _ in range(25):
        advance(state)
    contents = capture(state, {})
    saver = Saver.after(job, training, start)
    rows = saver.unsaved(state.experience)
    guillotine.install()
    saver._save(contents, rows, frozenset())  # in this very thread, so that the count is the same every time
    return ORDERLY


def seen(start: Start | None) -> dict[str, Any]:
    """What an attempt would start from."""
    assert start is not None
    return {
        "step": start.ref.step,
        "parts": parts_of(start.contents),
        "replay": digest_of(start.experience.own.arrays()),
        "notes": list(start.notes),
    }


def look(run_dir: Path) -> dict[str, Any]:
    return seen(find_start(Job.standalone(run_dir), section(**FIELDS)))


def main(folder: Path) -> None:
    prepared = folder / "prepared"
    for steps in (200, 400):
        assert in_a_process_of_its_own(lambda steps=steps: attempt(prepared, {}, {**FIELDS, "total_steps": steps})) == 0  # type: ignore[misc]
    k = 0
    while True:
        k += 1
        run_dir = folder / str(k)
        shutil.copytree(prepared, run_dir)
        before = look(run_dir)
        died = in_a_process_of_its_own(lambda k=k, run_dir=run_dir: go_on(run_dir, Guillotine(k)))  # type: ignore[misc]
        after = look(run_dir)
        successor = in_a_process_of_its_own(lambda run_dir=run_dir: go_on(run_dir, Guillotine(None)))  # type: ignore[misc]
        slot = run_dir / "slots/0"
        print(
            json.dumps(
                {
                    "k": k,
                    "died": died,
                    "before": before,
                    "after": after,
                    "successor": successor,
                    "finally": look(run_dir),
                    "unfinished": [str(path) for path in slot.rglob(".*")],
                    "whole": sum(1 for path in slot.glob("attempts/*/checkpoints/*/state.json")),
                    "nets": sum(1 for path in slot.glob("attempts/*/checkpoints/*/nets.safetensors")),
                }
            ),
            flush=True,
        )
        shutil.rmtree(run_dir)
        if died != -signal.SIGKILL:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
