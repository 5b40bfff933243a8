"""`python train_ranks.py FOLDER '[["a", 2, {"9": "SIGUSR2"}], ["a", 1, {}]]' TRAINING`: attempts of a training, which
is given as JSON.

Each is (the run's folder in FOLDER, how many ranks, signals as `killed_between_updates` takes them). The ranks are
forked after the slow imports, and before torch has computed anything. Prints a JSON list: the exit codes of each
attempt's ranks, negative where a signal killed one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from killed_between_updates import hurt

from anchorleg.files import make_folder
from anchorleg.job import Job
from trainer.config.section import TrainingSection, resolve
from trainer.errors import TrainerError
from trainer.machine.group import Group
from trainer.machine.launching import LOOPBACK, RankPlace
from trainer.training import begin
from trainer.training.begin import run
from trainer.training.features.progress import TrainingDisplay

TRAINING = json.loads(sys.argv[3])
#: Instead of a signal's number: the rank whose processor is another one.
OTHER = "other processor"
#: The rank whose home is another one, as on another node.
AWAY = "away"


def rank_of(job: Job, place: RankPlace, signals: dict[str, str]) -> int:
    """The exit code of one rank, in this process."""
    os.environ["ANCHORLEG_RANK"] = str(place.rank)
    hurt({number: word for number, word in signals.items() if number not in {OTHER, AWAY}})
    if signals.get(OTHER) == str(place.rank):
        begin.processor = lambda: "another"
    if signals.get(AWAY) == str(place.rank):
        os.environ["HOME"] = str(job.run_dir)
    if place.rank == 0:
        job.listen()
    group = Group.join(place, job.attempt_dir)
    try:
        return run(job, resolve(TrainingSection(**TRAINING)), TrainingDisplay(), group=group)
    except TrainerError as error:
        print(f"rank {place.rank}: {error}", flush=True)
        return error.exit_code
    finally:
        group.close()


def attempt(run_dir: Path, size: int, signals: dict[str, str]) -> list[int]:
    """The exit codes of the ranks of one attempt."""
    job = Job.standalone(run_dir)
    make_folder(job.attempt_dir)
    sys.stdout.flush()
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = rank_of(job, RankPlace(rank, size, rank, size, LOOPBACK), signals)
            finally:
                sys.stdout.flush()
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print(json.dumps([attempt(folder / name, size, signals) for name, size, signals in json.loads(sys.argv[2])]))
