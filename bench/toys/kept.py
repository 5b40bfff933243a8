"""A program to be kept going: 20 steps a second, each noted in a log, saved every 100 and on a signal.

`python kept.py FOLDER TOTAL`: under Anchorleg (its variables say so), or as a job of a chain. As `Kept` it is what
submitit calls again. Standard library only.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

PACE_S, EVERY = 0.05, 100


class Kept:
    """`folder`: of its log, and of its checkpoints where nobody else keeps them."""

    def __init__(self, folder, total):
        self.folder, self.total, self.asked = Path(folder), total, False

    def __call__(self):
        """From the newest checkpoint on; how far it came."""
        at = os.environ.get("ANCHORLEG_ATTEMPT_DIR")
        self.saves = Path(at, "checkpoints") if at else self.folder / "checkpoints"
        self.saves.mkdir(parents=True, exist_ok=True)
        parent = os.environ.get("ANCHORLEG_PARENT") if at else max(self.saves.glob("[0-9]*"), key=_number, default=None)
        self.n = int(Path(parent, "n").read_text()) if parent else 0
        if at or "SUBMITIT_EXECUTOR" not in os.environ:
            signal.signal(signal.SIGUSR2, self._ask)
            signal.signal(signal.SIGTERM, self._ask)
        asked = Path(os.environ.get("ANCHORLEG_HANDOVER_FILE", "/nowhere"))
        with open(self.folder / "log", "a", buffering=1) as log:
            while self.n < self.total and not self.asked and not asked.exists():
                time.sleep(PACE_S)
                self.n += 1
                log.write(f"{time.time():.3f} {os.getpid()} {self.n}\n")
                if self.n % EVERY == 0:
                    self.save()
        self.save()
        return self.n

    def save(self):
        """A folder that is renamed when it is whole."""
        if (self.saves / str(self.n)).exists():
            return
        new = self.saves / f".new-{os.getpid()}"
        new.mkdir(exist_ok=True)
        with open(new / "n", "w") as file:
            file.write(str(self.n))
            file.flush()
            os.fsync(file.fileno())
        new.rename(self.saves / str(self.n))
        if at := os.environ.get("ANCHORLEG_ATTEMPT_DIR"):
            Path(at, "progress.tmp").write_text(
                json.dumps({"step": self.n, "total": self.total, "checkpoint_step": self.n})
            )
            os.replace(f"{at}/progress.tmp", f"{at}/progress.json")

    def checkpoint(self):
        """What submitit calls at its signal, and again after it: the same, from what is saved."""
        import submitit

        self.save()
        return submitit.helpers.DelayedSubmission(Kept(self.folder, self.total))

    def _ask(self, *_):
        self.asked = True


def _number(path):
    return int(path.name)


if __name__ == "__main__":
    done = Kept(sys.argv[1], int(sys.argv[2]))()
    sys.exit(75 if "ANCHORLEG_ATTEMPT_DIR" in os.environ and done < int(sys.argv[2]) else 0)
