"""A policy over a slow line: ours beside `cat` over an ssh that is logged in, and `rsync -a` over a fresh ssh.

`python bench/weight_link.py [ROUNDS] [RTT_MS] [MBIT_S] [LOSS_PERCENT]` puts a line of 40 ms, 100 Mbit/s and 1 % loss
(`bench/toys/slow_link.py` says what it models) before a real sshd. In each round each way brings a new policy of 0.35
MB, and every third round one of 30 MB, by turns. Ours begins at the publication's end: the server's notice is part of
it. The rivals are told the file's name for nothing. All end with the content verified by its sum. Writes
weight_link.csv.
"""

from __future__ import annotations

import hashlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import figures

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from policies import RUN, publish_one  # noqa: E402
from sshd import Laptop, Sshd, missing_sshd_parts, throw_away_sshd  # noqa: E402

from syncd import store  # noqa: E402
from syncd.laptop.mirror import Mirror  # noqa: E402
from syncd.transports.factory import open_transport  # noqa: E402
from syncd.wire.session import Session  # noqa: E402
from syncd.wire.transport import News  # noqa: E402

#: Columns of the first tensor, for a blob of about so many bytes.
SIZES = {"0.35 MB": 6_000, "30 MB": 515_000}
OURS = ("openssh", "paramiko")
RIVALS = ("cat, logged in", "rsync -a, fresh ssh")
LARGE_EVERY = 3
#: A way that takes longer than this hangs.
LIMIT_S = 300.0
#: What `rsync` every 5 s waits in the mean before it begins.
USUAL_WAIT_S = 2.5
LINE = (40.0, 100.0, 1.0)


@dataclass
class Ours:
    """One laptop of ours on the line, connected; its shared folder is its own."""

    shared: store.Shared
    transport: Session
    mirror: Mirror
    seq: int = 1

    def bring(self, wide: int) -> float:
        """Seconds from a new policy's publication to its verified file."""
        self.seq += 1
        wanted = publish_one(self.shared, 1, self.seq, wide=wide)
        began = time.monotonic()
        while time.monotonic() - began < LIMIT_S:
            if self.has(self.transport.wait(1.0), wanted):
                return time.monotonic() - began
        raise TimeoutError("our policy did not arrive")

    def has(self, news: News, wanted: store.Manifest) -> bool:
        """Whether these news brought `wanted`, let in."""
        found = False
        for offer in self.mirror.wanted(news.offers, changed=True):
            manifest = self.mirror.bring(offer, self.transport.fetch).manifest
            found |= manifest is not None and manifest.version == wanted.version
        return found


class Rivals:
    """The usual programs on the same line. `connection`: the socket of the ssh that is logged in."""

    def __init__(self, config: Path, shared: store.Shared, scratch: Path) -> None:
        self.config, self.shared, self.scratch = config, shared, scratch
        self.seq = 1
        self.connection = scratch / "mux"
        self.ssh = ["ssh", "-F", str(config), "-o", f"ControlPath={self.connection}"]

    @contextmanager
    def logged_in(self) -> Iterator[None]:
        """An ssh in the background, through which others go."""
        run([*self.ssh, "-o", "ControlPersist=yes", "-M", "-N", "-f", "cluster"])
        try:
            yield
        finally:
            run([*self.ssh, "-O", "exit", "cluster"])

    def bring(self, name: str, wide: int) -> float:
        """Seconds from the start of `name` to the verified file."""
        self.seq += 1
        sha256 = publish_one(self.shared, 1, self.seq, wide=wide).blob.sha256
        there, here = self.shared.slot(RUN, 0).blob(sha256), self.scratch / f"{self.seq}"
        began = time.monotonic()
        if name == RIVALS[0]:
            with open(here, "wb") as file:
                subprocess.run([*self.ssh, "cluster", f"cat {there}"], stdout=file, check=True, timeout=LIMIT_S)
        else:
            run(["rsync", "-a", "-e", f"ssh -F {self.config}", f"cluster:{there}", str(here)])
        assert hashlib.sha256(here.read_bytes()).hexdigest() == sha256
        took = time.monotonic() - began
        here.unlink()
        return took


def run(command: list[str]) -> None:
    subprocess.run(command, check=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


@contextmanager
def slow_link(port: int, line: tuple[float, ...]) -> Iterator[int]:
    """The port of a line to `port`."""
    command = [sys.executable, str(ROOT / "bench/toys/slow_link.py"), str(port), *map(str, line)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield int(child.stdout.readline())
        finally:
            child.kill()


def through(port: int, server: Sshd, laptop: Laptop) -> Path:
    """Make this laptop know the server at `port`, too; returns its ssh config for there."""
    with open(laptop.known_hosts, "a", encoding="utf-8") as file:
        file.write(server.host_key_line.replace(f":{server.port}", f":{port}") + "\n")
    config = laptop.config.with_name("slow")
    config.write_text(laptop.config.read_text().replace(f"Port {server.port}", f"Port {port}"))
    return config


def measured(rounds: int, line: tuple[float, ...]) -> dict[tuple[str, str], list[float]]:
    """(size, way) → seconds."""
    found: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(throw_away_sshd())
        port = stack.enter_context(slow_link(server.port, line))
        ways: dict[str, Callable[[int], float]] = {}
        for name in OURS:
            shared = store.Shared(scratch / f"{name}-shared")
            first = publish_one(shared, 1, 1)
            laptop = server.new_client(name)
            through(port, server, laptop)
            remote = server.remote(laptop, shared.path, port=port, ssh_config=None)
            transport = open_transport(remote, name, client=name)  # type: ignore[arg-type]
            stack.callback(transport.close)
            ours = Ours(shared, transport, Mirror(scratch / name))
            ours.has(transport.listing(), first)
            ways[name] = ours.bring
        shared = store.Shared(scratch / "rivals-shared")
        publish_one(shared, 1, 1)
        rivals = Rivals(through(port, server, server.new_client("usual")), shared, scratch)
        stack.enter_context(rivals.logged_in())
        for name in RIVALS:
            ways[name] = lambda wide, name=name: rivals.bring(name, wide)  # type: ignore[misc]
        for number in range(rounds):
            for size, wide in SIZES.items():
                if size == "0.35 MB" or number % LARGE_EVERY == 0:
                    order = list(ways)[number % len(ways) :] + list(ways)[: number % len(ways)]
                    for name in order:
                        found.setdefault((size, name), []).append(ways[name](wide))
    return found


def main() -> None:
    """Measure all by turns and print it."""
    rounds = figures.number(1, 24)
    line = tuple(float(word) for word in sys.argv[2:5]) or LINE
    if missing := missing_sshd_parts():
        sys.exit(f"not there: {', '.join(missing)}")
    found = measured(rounds, line)
    middle = {key: statistics.median(times) for key, times in found.items()}
    rows = []
    for (size, name), times in found.items():
        ordered, median = sorted(times), middle[size, name]
        spread = (median, ordered[len(times) // 10], ordered[-1 - len(times) // 10])
        of_rivals = [f"{median / middle[size, rival]:.2f}" for rival in RIVALS]
        waited = median if name in OURS else median + USUAL_WAIT_S
        milliseconds = [f"{1000 * value:.0f}" for value in spread]
        rows.append([size, name, len(times), *milliseconds, *of_rivals, f"{waited:.2f}"])
        print(" ".join(map(str, rows[-1])))
    head = ["policy", "way", "count", "median_ms", "p10_ms", "p90_ms", "of_cat", "of_rsync", "with_wait_s"]
    figures.save("weight_link", head, rows)


if __name__ == "__main__":
    main()
