"""`python kill_demos.py record|fit FOLDER`: kill -9 before (and in the middle of) every write, and go on afterwards.

For each k a forked process dies at its k-th contact with the disk; then another does the same work to its end. Prints
one JSON object a k: how the first died, and a digest of what the second left.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import sys
from pathlib import Path

import demos
import torch
from guillotine import Guillotine
from train_point_mass import in_a_process_of_its_own

from anchorleg.job import Job
from trainer.demos import begin, store
from trainer.demos.fit import run
from trainer.demos.store import Demos

ORDERLY = 7


def record(folder: Path, guillotine: Guillotine) -> int:
    """Five episodes, two a block."""
    store._BLOCK_EPISODES = 2
    guillotine.install()
    demos.recorded(folder / "out", 5)
    return ORDERLY


def fit(folder: Path, guillotine: Guillotine) -> int:
    """Four steps, of which every second one is measured and saved."""
    torch.set_num_threads(1)
    found, training = Demos.open(folder / "demos"), demos.training()
    learner = begin.learner_of(found, training, by_actions=True)
    plan = begin.plan_of(found, training, learner, steps=4, batch_size=4, learning_rate=1e-3, every=2)
    guillotine.install()
    done = run(Job.standalone(folder / "run"), learner, plan, demos.silent, demos.silent)
    assert done is not None
    begin.write_weights(folder / "out" / "weights.safetensors", done, found, training)
    return ORDERLY


def digest_of(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")):
        found.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return found.hexdigest()


def main(what: str, folder: Path) -> None:
    work = {"record": record, "fit": fit}[what]
    prepared = folder / "prepared"
    prepared.mkdir()
    if what == "fit":
        demos.recorded(prepared / "demos", 6)
        torch.set_num_threads(1)
        weight = torch.zeros(1, requires_grad=True)
        torch.optim.Adam([weight]).step()  # loads what takes each fork a second
    k = 0
    while True:
        k += 1
        here = folder / str(k)
        shutil.copytree(prepared, here)
        died = in_a_process_of_its_own(lambda k=k, here=here: work(here, Guillotine(k)))  # type: ignore[misc]
        then = in_a_process_of_its_own(lambda here=here: work(here, Guillotine(None)))  # type: ignore[misc]
        print(json.dumps({"k": k, "died": died, "then": then, "left": digest_of(here / "out")}), flush=True)
        shutil.rmtree(here)
        if died != -signal.SIGKILL:
            return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
