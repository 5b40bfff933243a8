"""`python kill_counts.py FOLDER`: kill -9 before (and in the middle of) every write of a round of the judge.

Three segments of two contributors wait. For each k a forked process judges them and dies at its k-th contact with the
disk; then a successor judges what is left. One JSON object a k: what is counted, and what lies accepted.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from guillotine import Guillotine
from kill_store import ORDERLY, in_a_fork
from train_contributed import HORIZON, made_up, send
from train_point_mass import section

from anchorleg.job import Job
from syncd import store
from trainer.sharing.ingest import Ingester
from trainer.sharing.segment import encode

WHO = ("ann", "ben")
#: The judges' one moment: no midnight (UTC) comes between what they count and who looks.
NOON = 1_760_097_600.0
TRAINING = section(horizon=HORIZON, contribution_max_lag=500, trusted_contributors=WHO)


def judge(job: Job, k: int | None) -> None:
    door = Ingester(job, TRAINING, step=100, clock=lambda: NOON)
    door.know(0, 0, 60)
    Guillotine(k).install()
    door.one_round()
    door.one_round()


def main(folder: Path) -> None:
    first = Job.standalone(folder / "prepared", accepts_contributions=True)
    first.start_from(None)
    for number, who in enumerate((*WHO, WHO[0])):
        send(first.shared_dir, who, "demo-0123abcd", encode(made_up("demo-0123abcd", number)))
    k, died = 0, -9
    while died != ORDERLY:
        k += 1
        run_dir = folder / str(k)
        shutil.copytree(first.run_dir, run_dir)
        job = Job(run_dir, 0, 0, run_id="demo-0123abcd", accepts_contributions=True, terms={"rows_per_day": 10**6})
        died = in_a_fork(lambda k=k, job=job: judge(job, k))  # type: ignore[misc]
        judge_again = in_a_fork(lambda job=job: judge(job, None))  # type: ignore[misc]
        assert judge_again == ORDERLY
        inboxes = store.Inbox.all_of(store.Shared(job.shared_dir))
        given = [store.given_to(inbox.path, job.run_id, 0) for inbox in inboxes]
        record = {
            "died": died,
            "accepted": sum(each.accepted for each in given),
            "rows": sum(each.rows for each in given),
            "of_today": sum(each.rows_of(NOON) for each in given),
            "there": sum(inbox.usage("accepted").segments for inbox in inboxes),
        }
        print(json.dumps(record), flush=True)
        shutil.rmtree(run_dir)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
