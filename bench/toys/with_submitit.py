"""The same steps under submitit, run by its own interpreter: `python with_submitit.py FOLDER` submits and says the id.

The job steps until submitit's signal (USR2) comes; `checkpoint` then hands submitit a new submission, which submitit
requeues with `scontrol requeue`: its documented way over a timeout.
"""

import os
import sys
import time

import submitit


class Steps:
    """Counts until it is stopped from outside."""

    def __init__(self, log, n=0):
        self.log = log
        self.n = n

    def __call__(self):
        """The job."""
        job = os.environ["SLURM_JOB_ID"]
        with open(self.log, "a", buffering=1) as log:
            log.write(f"{time.time():.4f} {job} begin\n")
            while True:
                time.sleep(0.05)
                self.n += 1
                log.write(f"{time.time():.4f} {job} step\n")

    def checkpoint(self):
        """What to requeue."""
        return submitit.helpers.DelayedSubmission(Steps(self.log, self.n))


if __name__ == "__main__":
    folder = sys.argv[1]
    executor = submitit.AutoExecutor(folder=folder, cluster="slurm", slurm_max_num_timeout=100)
    executor.update_parameters(timeout_min=60, tasks_per_node=1, nodes=1, slurm_partition="gpu")
    print(executor.submit(Steps(f"{folder}/steps.log")).job_id)
