"""How long a policy takes from its publication to a verified file on a laptop, and what waiting for one costs.

`python bench/weight_latency.py [PUBLICATIONS] [IDLE_S]` publishes MT10-sized actors into a shared folder behind a real
sshd on loopback. Three laptops watch it at once: ours over `ssh`, ours over paramiko, and the usual way, `rsync -a`
over a fresh ssh every 5 s. Then each of ours is left alone for IDLE_S seconds. Writes weight_latency.csv and
weight_idle.csv.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import figures
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from daemons import _stat  # noqa: E402
from policies import RUN, a_draft  # noqa: E402
from sshd import Laptop, Sshd, missing_sshd_parts, throw_away_sshd  # noqa: E402

from syncd import store  # noqa: E402
from syncd.laptop.mirror import Mirror  # noqa: E402
from syncd.remote import Remote  # noqa: E402
from syncd.transports.factory import open_transport  # noqa: E402
from syncd.wire.session import Session  # noqa: E402

RSYNC_EVERY_S = 5.0
OURS = ("openssh", "paramiko")
#: An MT10 actor: 39 numbers and a task, two layers of 256, mean and deviation of 4 actions.
SHAPES = {
    "0.weight": (256, 49),
    "0.bias": (256,),
    "1.weight": (256, 256),
    "1.bias": (256,),
    "2.weight": (8, 256),
    "2.bias": (8,),
}
SETTLE_S = 15.0


def tensors(seed: int) -> dict[str, np.ndarray]:
    """Weights as they are spread after an initialisation; trained ones compress alike."""
    rng = np.random.default_rng(seed)
    return {name: (rng.standard_normal(shape) / shape[-1] ** 0.5).astype(np.float32) for name, shape in SHAPES.items()}


class Watcher:
    """One laptop: when it had which blob, verified. `arrivals`: sha256 → monotonic seconds."""

    def __init__(self, name: str, shared: Path, server: Sshd, scratch: Path, purpose: str = "latency") -> None:
        self.name, self.shared, self.server = name, shared, server
        self.laptop = server.new_client(f"{name}-{purpose}")
        self.folder = scratch / name
        self.arrivals: dict[str, float] = {}
        self.took_s: list[float] = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch_rsync if name == "rsync" else self.watch, daemon=True)

    def open(self) -> Session:
        """Our transport."""
        remote = Remote(
            host="127.0.0.1", user=self.server.user, port=self.server.port, path=str(self.shared), key=self.laptop.key,
            known_hosts=self.laptop.known_hosts, command=str(Path(sys.executable).parent / "syncd"),
        )  # fmt: skip
        return open_transport(remote, self.name, client=self.name)  # type: ignore[arg-type]

    def watch(self) -> None:
        """News until the end, each verified and made visible as the daemon does."""
        mirror = Mirror(self.folder)
        transport = self.open()
        news = transport.listing()
        while not self.ended.is_set():
            for offer in mirror.wanted(news.offers, changed=True):
                manifest = mirror.bring(offer, transport.fetch).manifest
                if manifest is not None:
                    self.arrivals[manifest.blob.sha256] = time.monotonic()
            news = transport.wait(0.5)
        transport.close()

    def watch_rsync(self) -> None:
        """The usual loop: rsync, sleep, again. What came is verified by its sum."""
        command = ["rsync", "-a", "-e", ssh_words(self.laptop), f"cluster:{self.shared}/v1/", f"{self.folder}/"]
        next_at = time.monotonic()
        while not self.ended.is_set():
            began = time.monotonic()
            subprocess.run(command, check=True, timeout=60)
            came = [path for path in self.folder.rglob("blobs/*/*") if path.name not in self.arrivals]
            for path in came:
                assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
                self.arrivals[path.name] = time.monotonic()
            if came:
                self.took_s.append(time.monotonic() - began)
            next_at = max(next_at + RSYNC_EVERY_S, time.monotonic())
            self.ended.wait(next_at - time.monotonic())


def ssh_words(laptop: Laptop) -> str:
    return f"ssh -F {laptop.config}"


def latencies(publications: int, shared: Path, server: Sshd, scratch: Path) -> list[list[object]]:
    """The rows of the table: what, count, median, 90 %, worst, ratio, logins, bytes a policy."""
    watchers = [Watcher(name, shared, server, scratch) for name in (*OURS, "rsync")]
    place = store.Shared(shared).slot(RUN, 0)
    store.publish(place, a_draft(place, 1, 1), store.rounded(tensors(1)))
    for watcher in watchers:
        watcher.folder.mkdir()
        watcher.thread.start()
    deadline = time.monotonic() + SETTLE_S
    while not all(watcher.arrivals for watcher in watchers) and time.monotonic() < deadline:
        time.sleep(0.05)
    published: dict[str, float] = {}
    rng = random.Random(1)
    for seq in range(2, publications + 2):
        # The publications fall evenly over the loop's five seconds, and anyhow over our server's quarter of one.
        time.sleep(RSYNC_EVERY_S * (1 + 1 / publications) + rng.uniform(0, 0.25))
        weights = store.rounded(tensors(seq))
        draft = a_draft(place, 1, seq)
        sha256 = store.publish(place, draft, weights).blob.sha256
        published[sha256] = time.monotonic()
    time.sleep(RSYNC_EVERY_S + 1)
    for watcher in watchers:
        watcher.ended.set()
    for watcher in watchers:
        watcher.thread.join(20)
    rows = []
    found = {watcher.name: [watcher.arrivals[sha256] - at for sha256, at in published.items()] for watcher in watchers}
    usual = statistics.median(found["rsync"])
    raw = 4 * sum(int(np.prod(shape)) for shape in SHAPES.values())
    for watcher in watchers:
        times = sorted(found[watcher.name])
        median, late = statistics.median(times), times[int(0.9 * (len(times) - 1))]
        logins = logins_of(server, watcher.laptop)
        seconds = [f"{value:.3f}" for value in (median, late, times[-1])]
        rows.append([watcher.name, len(times), *seconds, f"{usual / median:.1f}", logins])
        print(
            f"{watcher.name}: median {seconds[0]} s, 90 % {seconds[1]} s, worst {seconds[2]} s of {len(times)}; "
            f"rsync's median is {usual / median:.1f} times it; {logins} logins"
        )
    took = statistics.median(watchers[-1].took_s)
    rows.append(["rsync, its run alone", len(watchers[-1].took_s), f"{took:.3f}", "", "", f"{usual / took:.1f}", ""])
    print(f"rsync, its run alone: median {took * 1000:.0f} ms")
    blob = store.newest(place)
    assert blob is not None
    print(f"a policy: {blob.blob.bytes} bytes, {blob.blob.bytes / raw:.3f} of its float32 actor")
    return rows


def logins_of(server: Sshd, laptop: Laptop) -> int:
    """How often this laptop's key logged in."""
    said = subprocess.run(
        ["ssh-keygen", "-lf", f"{laptop.key}.pub"], capture_output=True, text=True, check=True, timeout=10
    )
    fingerprint = said.stdout.split()[1]
    accepted = [line for line in server.log.read_text(errors="replace").splitlines() if line.startswith("Accepted pub")]
    return sum(fingerprint in line for line in accepted)


def idle(name: str, seconds: float, shared: Path, server: Sshd, scratch: Path) -> list[object]:
    """What one open connection costs while nothing happens: this side with its ssh, and all of the other side."""
    watcher = Watcher(name, shared, server, scratch, "idle")
    transport = watcher.open()
    transport.listing()
    transport.wait(SETTLE_S / 3)
    before = transport.facts()
    far, near = (figures.processor_s_of(pids) for pids in (server.processes(), [os.getpid(), *children()]))
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        transport.wait(seconds - (time.monotonic() - began))
    took = time.monotonic() - began
    far_ms, near_ms = (1000 * figures.processor_s_since(used) / took for used in (far, near))
    after = transport.facts()
    transport.close()
    frames = after.bytes_in + after.bytes_out - before.bytes_in - before.bytes_out
    print(
        f"{name}, idle for {took:.0f} s: {far_ms:.2f} ms CPU a second over there, {near_ms:.2f} here, "
        f"{frames / took:.1f} bytes of frames a second, {logins_of(server, watcher.laptop)} login"
    )
    return [name, f"{took:.0f}", f"{far_ms:.2f}", f"{near_ms:.2f}", f"{frames / took:.1f}"]


def children() -> list[int]:
    """The ssh processes of this one."""
    pids = [int(name) for name in os.listdir("/proc") if re.fullmatch("[0-9]+", name)]
    return [pid for pid in pids if (fields := _stat(pid)) is not None and int(fields[1]) == os.getpid()]


def main() -> None:
    """Measure all in one run and print it."""
    publications = int(sys.argv[1]) if len(sys.argv) > 1 else 12
    idle_s = float(sys.argv[2]) if len(sys.argv) > 2 else 60.0
    if missing := missing_sshd_parts():
        sys.exit(f"not there: {', '.join(missing)}")
    with tempfile.TemporaryDirectory() as name, throw_away_sshd() as server:
        scratch = Path(name)
        shared = scratch / "shared"
        shared.mkdir()
        rows = latencies(publications, shared, server, scratch)
        head = ["what", "count", "median_s", "p90_s", "worst_s", "rsync_over_it", "logins"]
        figures.save("weight_latency", head, rows)
        costs = [idle(carrier, idle_s, shared, server, scratch) for carrier in OURS]
        head = ["what", "seconds", "far_cpu_ms_per_s", "near_cpu_ms_per_s", "frame_bytes_per_s"]
        figures.save("weight_idle", head, costs)


if __name__ == "__main__":
    main()
