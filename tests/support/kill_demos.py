"""`python kill_demos.py FOLDER`: kill -9 before (and in the middle of) every write, and go on afterwards.

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
from guillotine import Guillotine
from train_point_mass import in_a_process_of_its_own

from trainer.demos import store

ORDERLY = 7


def record(folder: Path, guillotine: Guillotine) -> int:
    """Five episodes, two a block."""
    store._BLOCK_EPISODES = 2
    guillotine.install()
    demos.recorded(folder / "out", 5)
    return ORDERLY


def digest_of(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")):
        found.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return found.hexdigest()


def main(folder: Path) -> None:
    k = 0
    while True:
        k += 1
        here = folder / str(k)
        here.mkdir()
        died = in_a_process_of_its_own(lambda k=k, here=here: record(here, Guillotine(k)))  # type: ignore[misc]
        then = in_a_process_of_its_own(lambda here=here: record(here, Guillotine(None)))  # type: ignore[misc]
        print(json.dumps({"k": k, "died": died, "then": then, "left": digest_of(here / "out")}), flush=True)
        shutil.rmtree(here)
        if died != -signal.SIGKILL:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]))
