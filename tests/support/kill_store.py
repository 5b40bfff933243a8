"""`python kill_store.py FOLDER`: kill -9 before (and in the middle of) every write of a policy's publication.

A slot has two policies. For each k a forked process publishes a third into a copy, clears the oldest away, and dies at
its k-th contact with the disk; then a reader looks, and a successor publishes and clears away. One JSON object a k.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guillotine import Guillotine
from policies import RUN, publish_one, tensors

from syncd import store
from syncd.shared.retention import UNLISTED_S

ORDERLY = 7
KEEP = store.Keep(newest=2)


def in_a_fork(act: Callable[[], None]) -> int:
    """ORDERLY, or minus the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - nothing may leave a fork but by its exit
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(ORDERLY)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def third(shared: store.Shared, k: int | None) -> None:
    Guillotine(k).install()
    publish_one(shared, 0, 2, created_at=2.0)
    store.collect(shared.slot(RUN, 0), now=time.time(), keep=KEEP)


def seen(shared: store.Shared) -> str | None:
    """The newest version, if its weights are those that were published under it."""
    place = shared.slot(RUN, 0)
    manifest = store.newest(place)
    assert manifest is not None
    weights, right = store.read(place, manifest), store.rounded(tensors(1000 * manifest.attempt + manifest.seq))
    return str(manifest.version) if all((weights[name] == right[name]).all() for name in right) else None


def main(folder: Path) -> None:
    prepared = store.Shared(folder / "prepared")
    for seq in range(2):
        publish_one(prepared, 0, seq, created_at=float(seq))
    k, died = 0, -9
    while died != ORDERLY:
        k += 1
        shared = store.Shared(folder / str(k))
        shutil.copytree(prepared.path, shared.path)
        place = shared.slot(RUN, 0)
        died = in_a_fork(lambda k=k, shared=shared: third(shared, k))  # type: ignore[misc]
        record: dict[str, Any] = {"k": k, "died": died, "after": seen(shared)}
        publish_one(shared, 0, 2, created_at=2.0)  # the same again: whatever is there of it is no obstacle
        publish_one(shared, 1, 0, created_at=3.0)
        record["finally"] = seen(shared)
        now = time.time()
        record["troubles"] = store.collect(place, now=now + UNLISTED_S + 60, keep=KEEP)
        record["troubles"] += store.collect(place, now=now + 3 * UNLISTED_S, keep=KEEP)
        record["files"] = sorted(str(path.relative_to(place.path)) for path in place.path.rglob("*") if path.is_file())
        record["kept"] = seen(shared)
        print(json.dumps(record), flush=True)
        shutil.rmtree(shared.path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
