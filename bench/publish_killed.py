"""Ten thousand publications by writers that are killed again and again, beside readers and the clearing away.

`python bench/publish_killed.py [PUBLICATIONS] [MEAN_LIFE_S]`: a writer publishes as fast as it can and clears away all
but the newest; kill -9 ends it at a random moment, and a successor goes on. Two readers take the newest policy without
end and check all of it. `torn`: what was not what its manifest says; `missing`: a policy whose weights were not there.
Writes publish_killed.csv.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import figures

ROOT = Path(__file__).resolve().parents[1]
READERS = 2
GRACE_S = 120.0

WRITER = textwrap.dedent(
    """
    import sys, time
    from pathlib import Path
    from policies import RUN, publish_one
    from syncd import store
    from syncd.shared.retention import Keep
    shared = store.Shared(Path(sys.argv[1]))
    for seq in range(1, int(sys.argv[3]) + 1):
        publish_one(shared, int(sys.argv[2]), seq)
        print(seq, flush=True)
        if seq % 20 == 0:
            store.collect(shared.slot(RUN, 0), now=time.time(), keep=Keep(newest=5))
    """
)
READER = textwrap.dedent(
    """
    import json, sys, threading
    from pathlib import Path
    from policies import RUN
    from syncd import store
    from syncd.errors import DamagedPolicyError, MissingBlobError
    place = store.Shared(Path(sys.argv[1])).slot(RUN, 0)
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    counts, last = {"looks": 0, "versions": 0, "torn": 0, "missing": 0, "backwards": 0}, None
    while not over.is_set():
        manifest = store.newest(place)
        if manifest is None:
            continue
        counts["looks"] += 1
        try:
            store.read(place, manifest)
        except MissingBlobError:
            counts["missing"] += 1
        except DamagedPolicyError:
            counts["torn"] += 1
        if manifest.version != last:
            counts["versions"] += 1
            counts["backwards"] += last is not None and manifest.version < last
            last = manifest.version
    print(json.dumps(counts))
    """
)


def python(program: str, *words: str) -> subprocess.Popen[str]:
    """A program of ours in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT / 'tests/support'}", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def one_life(folder: Path, attempt: int, left: int, life_s: float) -> int:
    """Publications that a writer finished before it was killed, `life_s` after its first one."""
    with python(WRITER, str(folder), str(attempt), str(left)) as writer:
        assert writer.stdout is not None
        first = writer.stdout.readline()
        killing = threading.Timer(life_s, writer.kill)
        killing.start()
        done = [line for line in [first, *writer.stdout] if line.endswith("\n")]
        killing.cancel()
    assert writer.returncode in {0, -9}
    return len(done)


def main() -> None:
    """Publish, kill, read, and print what was found."""
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    mean_s = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        readers = [python(READER, name) for _ in range(READERS)]
        began, published, lives = time.monotonic(), 0, 0
        while published < wanted:
            lives += 1
            published += one_life(folder, lives, wanted - published, chance.expovariate(1 / mean_s))
        took_s = time.monotonic() - began
        found = [json.loads(reader.communicate(timeout=GRACE_S)[0]) for reader in readers]
        sums = {key: sum(counts[key] for counts in found) for key in found[0]}
    print(f"{published} publications in {lives} lives, {took_s:.0f} s; readers: {sums}")
    head = ["publications", "kills", *sums]
    figures.save("publish_killed", head, [[published, lives - 1, *sums.values()]])
    if sums["torn"] or sums["missing"] or sums["backwards"]:
        sys.exit("a reader saw what it must not see")


if __name__ == "__main__":
    main()
