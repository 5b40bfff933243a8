"""How long a policy takes from its publication to a verified file on a laptop.

`python bench/weight_latency.py [PUBLICATIONS]` publishes MT10-sized actors into a shared folder behind a real sshd on
loopback. Two laptops watch it at once: ours over `ssh`, and the usual way, `rsync -a` over a
fresh ssh every 5 s. Writes weight_latency.csv.
"""

from __future__ import annotations

import hashlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import figures

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from policies import publish_one  # noqa: E402
from sshd import Laptop, Sshd, missing_sshd_parts, throw_away_sshd  # noqa: E402

from syncd import store  # noqa: E402
from syncd.laptop.mirror import Mirror  # noqa: E402
from syncd.transports import open_transport  # noqa: E402

RSYNC_EVERY_S = 5.0
OURS = ("openssh",)
#: Columns of a policy's first tensor: an MT10 actor takes as many bytes.
WIDE = 2_000
SETTLE_S = 15.0


class Watcher:
    """One laptop: when it had which blob, verified. `arrivals`: sha256 → monotonic seconds."""

    def __init__(self, name: str, shared: Path, server: Sshd, scratch: Path) -> None:
        self.name, self.shared, self.server = name, shared, server
        self.laptop = server.new_client(name)
        self.folder = scratch / name
        self.arrivals: dict[str, float] = {}
        self.took_s: list[float] = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.watch_rsync if name == "rsync" else self.watch, daemon=True)

    def watch(self) -> None:
        """News until the end, each verified and made visible as the daemon does."""
        mirror = Mirror(self.folder)
        remote = self.server.remote(self.laptop, self.shared, ssh_config=None)
        transport = open_transport(remote, client=self.name)
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
        command = ["rsync", "-a", "-e", f"ssh -F {self.laptop.config}", f"cluster:{self.shared}/v1/", f"{self.folder}/"]
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


def latencies(publications: int, shared: Path, server: Sshd, scratch: Path) -> list[list[object]]:
    """The rows of the table: what, count, median, 90 %, worst, ratio, logins."""
    watchers = [Watcher(name, shared, server, scratch) for name in (*OURS, "rsync")]
    folder = store.Shared(shared)
    publish_one(folder, 1, 1, wide=WIDE)
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
        published[publish_one(folder, 1, seq, wide=WIDE).blob.sha256] = time.monotonic()
    time.sleep(RSYNC_EVERY_S + 1)
    for watcher in watchers:
        watcher.ended.set()
    for watcher in watchers:
        watcher.thread.join(20)
    rows = []
    found = {watcher.name: [watcher.arrivals[sha256] - at for sha256, at in published.items()] for watcher in watchers}
    usual = statistics.median(found["rsync"])
    for watcher in watchers:
        times = found[watcher.name]
        median, logins = statistics.median(times), logins_of(server, watcher.laptop)
        seconds = [f"{value:.3f}" for value in figures.late(times)]
        rows.append([watcher.name, len(times), *seconds, f"{usual / median:.1f}", logins])
        print(
            f"{watcher.name}: median {seconds[0]} s, 90 % {seconds[1]} s, worst {seconds[2]} s of {len(times)}; "
            f"rsync's median is {usual / median:.1f} times it; {logins} logins"
        )
    took = statistics.median(watchers[-1].took_s)
    rows.append(["rsync, its run alone", len(watchers[-1].took_s), f"{took:.3f}", "", "", f"{usual / took:.1f}", ""])
    print(f"rsync, its run alone: median {took * 1000:.0f} ms")
    return rows


def logins_of(server: Sshd, laptop: Laptop) -> int:
    """How often this laptop's key logged in."""
    said = subprocess.run(
        ["ssh-keygen", "-lf", f"{laptop.key}.pub"], capture_output=True, text=True, check=True, timeout=10
    )
    fingerprint = said.stdout.split()[1]
    accepted = [line for line in server.log.read_text(errors="replace").splitlines() if line.startswith("Accepted pub")]
    return sum(fingerprint in line for line in accepted)


def main() -> None:
    """Measure all in one run and print it."""
    if missing := missing_sshd_parts():
        sys.exit(f"not there: {', '.join(missing)}")
    with tempfile.TemporaryDirectory() as name, throw_away_sshd() as server:
        scratch = Path(name)
        shared = scratch / "shared"
        shared.mkdir()
        rows = latencies(figures.number(1, 12), shared, server, scratch)
        head = ["what", "count", "median_s", "p90_s", "worst_s", "rsync_over_it", "logins"]
        figures.save("weight_latency", head, rows)


if __name__ == "__main__":
    main()
