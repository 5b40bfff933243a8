"""What `syncd` costs: one idle laptop, and twenty on one host, each figure beside its budget.

`python bench/weight_class.py [LAPTOPS] [PUBLICATIONS] [IDLE_S]` starts real `syncd watch` processes against a real sshd
on loopback. `idle`: processor time of one laptop (with its ssh) and of its server while nothing happens, over `ssh`.
`class`: LAPTOPS over `ssh` at once; the time from a publication to the last laptop's verified file, the
memory of a laptop's process and of its server (what they share is counted by halves), and the processor time of all
of them for one policy and laptop. Writes weight_class.csv. Linux only.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import figures

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from daemons import wait_for  # noqa: E402
from policies import RUN, publish_one  # noqa: E402
from sshd import Sshd, _descendants, missing_sshd_parts, throw_away_sshd  # noqa: E402
from watching import Watcher, settled, watching  # noqa: E402

from syncd import store  # noqa: E402

#: Columns of a policy's first tensor: some 0.35 MB, more than twice an MT10 actor.
WIDE = 6_000
#: After the start: what only the first seconds cost is not counted.
SETTLE_S = 10.0
#: ms of processor time in 5 s, one laptop, either side.
IDLE_BUDGET_MS = 2.0
#: To the last of twenty laptops: on two cores that all share, twenty times 10 ms of work are the most of it.
LATENCY_BUDGET_MS = 500.0
#: A Python with numpy and pydantic has 40 MB of its own; twenty servers fit into 1 GB of a login node.
MEMORY_BUDGET_MB = 50.0
#: Of laptop, ssh, sshd and server together, for one policy.
POLICY_BUDGET_MS = 25.0


def start(stack: ExitStack, server: Sshd, shared: Path, scratch: Path, name: str) -> Watcher:
    """One laptop that is connected."""
    laptop = server.new_client(name)
    env = settled(laptop, server, shared)
    watcher = stack.enter_context(watching(scratch / name, "", env=env))
    watcher.live()
    return watcher


def with_children(watchers: Sequence[Watcher]) -> list[int]:
    """The laptops' processes and their ssh."""
    return [pid for watcher in watchers for pid in {watcher.pid, *_descendants(watcher.pid)}]


def memory_mb(pid: int) -> float:
    """What a process has of its own, and its part of what it shares."""
    facts = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return int(facts["Pss"].split()[0]) / 1000


def idle(seconds: float, server: Sshd, shared: Path, scratch: Path) -> list[list[object]]:
    """Rows: processor time of one laptop and of its server in 5 s of waiting."""
    with ExitStack() as stack:
        watcher = start(stack, server, shared, scratch, "idle")
        time.sleep(SETTLE_S)
        sides = {"laptop": with_children([watcher]), "server": server.processes()}
        before = {side: figures.processor_s_of(pids) for side, pids in sides.items()}
        began = time.monotonic()
        time.sleep(seconds)
        fives = (time.monotonic() - began) / 5
        spent = {side: 1e3 * figures.processor_s_since(used) / fives for side, used in before.items()}
        return [row(f"idle, {side}: ms of CPU in 5 s", ms, IDLE_BUDGET_MS) for side, ms in spent.items()]


def arrived_at(watcher: Watcher, version: store.Version) -> float:
    """When (unix s) this laptop gave a verified policy its name."""
    manifest = store.Shared(watcher.folder).slot(RUN, 0).manifest(version)
    wait_for(manifest.exists, "the policy")
    return manifest.stat().st_ctime


def many(laptops: int, publications: int, server: Sshd, shared: Path, scratch: Path) -> list[list[object]]:
    """Rows: latency, memory and processor time of `laptops` at once."""
    with ExitStack() as stack:
        watchers = [start(stack, server, shared, scratch, f"laptop-{k}") for k in range(laptops)]
        time.sleep(SETTLE_S)
        before = figures.processor_s_of([*with_children(watchers), *server.processes()])
        last, all_of_them = [], []
        for seq in range(2, publications + 2):
            version = publish_one(store.Shared(shared), 1, seq, wide=WIDE).version
            published = time.time()
            late = [max(0.0, 1000 * (arrived_at(watcher, version) - published)) for watcher in watchers]
            last.append(max(late))
            all_of_them += late
        spent = 1e3 * figures.processor_s_since(before) / publications / laptops
        servers = [memory_mb(pid) for pid in server.processes("syncd", "serve") if is_python(pid)]
        clients = [memory_mb(watcher.pid) for watcher in watchers]
        return [
            row(f"{laptops} laptops: ms to one of them, median", statistics.median(all_of_them), LATENCY_BUDGET_MS),
            row(f"{laptops} laptops: ms to the last of them, median", statistics.median(last), LATENCY_BUDGET_MS),
            row(f"{laptops} laptops: MB of one's server, most", max(servers), MEMORY_BUDGET_MB),
            row(f"{laptops} laptops: MB of one's own process, most", max(clients), MEMORY_BUDGET_MB),
            row(f"{laptops} laptops: ms of CPU a policy and laptop, all sides", spent, POLICY_BUDGET_MS),
        ]


def is_python(pid: int) -> bool:
    try:
        return "python" in os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return False


def row(what: str, value: float, budget: float) -> list[object]:
    """One figure beside its budget, printed."""
    found = [what, f"{value:.1f}", f"{budget:g}", "yes" if value <= budget else "no"]
    print(f"{found[0]}: {found[1]} (budget {found[2]}{'' if value <= budget else ', MISSED'})", flush=True)
    return list(found)


def main() -> None:
    """Measure all and print it."""
    laptops, publications, idle_s = figures.number(1, 20), figures.number(2, 20), figures.number(3, 60.0)
    if missing := missing_sshd_parts():
        sys.exit(f"not there: {', '.join(missing)}")
    with tempfile.TemporaryDirectory() as name, throw_away_sshd() as server:
        scratch = Path(name)
        shared = scratch / "shared"
        publish_one(store.Shared(shared), 1, 1, wide=WIDE)
        rows = idle(idle_s, server, shared, scratch)
        rows += many(laptops, publications, server, shared, scratch)
    figures.save("weight_class", ["what", "measured", "budget", "kept"], rows)


if __name__ == "__main__":
    main()
