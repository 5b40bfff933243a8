"""What it costs that agents are watched: the training that shows them, and the line that they go over.

`python bench/viewer_link.py [PAIRS]` trains preset `tiny` on MT10 with two lanes watched and not, by turns (PAIRS
times, 8 by default), and takes steps a second and processor time a step. Then two agents of real poses (door-open-v3,
30 pictures a second) go through a real sshd to a laptop: bytes on the line as the kernel counts them (ss(8)), watched,
and after the last watcher has gone; and over a line of 256 kbit/s and 300 ms (`bench/toys/slow_link.py`): pictures a
second, and how much later a policy comes, by turns watched and not. Writes viewer_link.csv.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import figures
import numpy as np
from weight_link import slow_link, through

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from policies import RUN, publish_one  # noqa: E402
from sshd import Laptop, Sshd, missing_sshd_parts, throw_away_sshd  # noqa: E402

from anchorleg.job import Job  # noqa: E402
from anchorleg.live.batches import checked  # noqa: E402
from anchorleg.live.ring import RingReader  # noqa: E402
from anchorleg.live.wanted import FILE, Asking, Wish  # noqa: E402
from syncd import store  # noqa: E402
from syncd.laptop.liveagents import LiveAgents  # noqa: E402
from syncd.laptop.mirror import Mirror  # noqa: E402
from syncd.remote import Remote  # noqa: E402
from syncd.transports.factory import open_transport  # noqa: E402
from syncd.wire.session import Session  # noqa: E402
from trainer.config.section import TrainingSection, resolve  # noqa: E402
from trainer.config.suites import Metaworld  # noqa: E402
from trainer.envs.shown import Glimpse  # noqa: E402
from trainer.envs.step import VectorSpec  # noqa: E402
from trainer.envs.suite import SuiteRef  # noqa: E402
from trainer.envs.vector import VectorEnv  # noqa: E402
from trainer.live.folder import LiveFolder  # noqa: E402
from trainer.live.framebuffer import BATCH_S, FrameBuffer  # noqa: E402
from trainer.training.begin import run  # noqa: E402
from trainer.training.features import frames  # noqa: E402
from trainer.training.features.progress import TrainingDisplay  # noqa: E402

PAIRS = 8
#: Of training in one way; what is between the wish and the first picture is not counted.
BLOCK_S, SETTLE_S = 10.0, 4.0
FPS = 30
TASK = "door-open-v3"
LANES = (Wish(0, "any", FPS), Wish(0, "t3", FPS))
LINE_S = 30.0
#: After the last watcher the line may say a last word for so long.
QUIET_AFTER_S = 20.0
#: Round trip ms, Mbit/s, per cent lost.
SLOW = (300.0, 0.256, 0.0)
#: Columns of a policy's first tensor, for a blob of about 70 kB; and how many of them are brought in each way.
WIDE, POLICIES = 1_000, 5
LIMIT_S = 120.0


class Renewing:
    """Somebody who asks for `wishes` until the end."""

    def __init__(self, place: Path, wishes: tuple[Wish, ...]) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        self._asking, self._wishes, self._over = Asking(place), wishes, threading.Event()
        self._thread = threading.Thread(target=self._renew)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()
        self._asking.renew(())

    def _renew(self) -> None:
        while not self._over.is_set():
            self._asking.renew(self._wishes)
            self._over.wait(1.0)


# --- the training ---------------------------------------------------------------------------------------------------


class _OverError(Exception):
    """Enough was measured."""


class Turns:
    """In place of the recorder: the recorder, and a clock that changes between watched and unwatched."""

    def __init__(self, recorder: Any, place: Path, pairs: int) -> None:
        self.recorder, self.place, self.left = recorder, place, 2 * pairs
        self.found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        self.watched = False
        self.watcher: Renewing | None = None
        self.began: tuple[int, float, float] | None = None
        self.settled_at = 0.0
        self._turn()

    def after(self, step: int, playing: Any) -> None:
        """As the recorder's."""
        self.recorder.after(step, playing)
        now = time.monotonic()
        if self.began is None and now > self.settled_at:
            self.began = (step, now, time.process_time())
        elif self.began is not None and now > self.settled_at + BLOCK_S:
            first, at, cpu = self.began
            steps = step - first
            self.found[self.watched].append((steps / (now - at), (time.process_time() - cpu) / steps))
            self.left -= 1
            if not self.left:
                raise _OverError
            self._turn()

    def _turn(self) -> None:
        if self.watcher is not None:
            self.watcher.__exit__()
            self.watcher = None
        self.watched = not self.watched
        if self.watched:
            self.watcher = Renewing(self.place, LANES)
            self.watcher.__enter__()
        self.settled_at = time.monotonic() + SETTLE_S
        self.began = None

    def tell(self, say: Callable[[str], None]) -> None:
        """As the recorder's."""
        self.recorder.tell(say)

    def close(self) -> None:
        """As the recorder's."""
        if self.watcher is not None:
            self.watcher.__exit__()
        self.recorder.close()


def trained(pairs: int) -> dict[bool, list[tuple[float, float]]]:
    """Watched or not → (steps a second, processor seconds a step) of each turn."""
    section = TrainingSection(
        preset="tiny", benchmark="MT10", device="cpu", total_steps=10**9, random_steps=1_000, buffer_size=50_000,
        evaluation_goals=0, checkpoint_interval=10**8, metrics_interval=10**6, publish_interval=10**6,
    )  # fmt: skip
    made: list[Turns] = []
    with tempfile.TemporaryDirectory() as folder, TrainingDisplay(live=False) as display:
        job = Job.standalone(Path(folder) / "run")
        place = job.shared_dir / "v1/runs" / job.run_id / FILE
        real = frames.frame_recorder_of  # type: ignore[attr-defined]

        def frame_recorder_of(*given: Any) -> Any:
            made.append(Turns(real(*given), place, pairs))
            return made[0]

        frames.frame_recorder_of = frame_recorder_of  # type: ignore[assignment, attr-defined]
        try:
            run(job, resolve(section), display)
        except _OverError:
            pass
        finally:
            frames.frame_recorder_of = real  # type: ignore[attr-defined]
    return made[0].found


# --- the line -------------------------------------------------------------------------------------------------------


class Agents(threading.Thread):
    """Two slots that play door-open-v3 by chance, in real time, into their rings."""

    def __init__(self, shared: store.Shared) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self._envs = VectorEnv(VectorSpec(SuiteRef(Metaworld(tasks=(TASK,))), 2, 0))
        self._envs.reset()
        self._folders = [LiveFolder(shared.slot(RUN, slot).path / "live", "training", 0) for slot in (0, 1)]
        for slot, folder in enumerate(self._folders):
            parts = self._envs.look(slot)
            assert parts is not None
            folder.add_scene(TASK, parts)
        self._envs.watch([0, 1])

    def run(self) -> None:
        """Play until it is over."""
        rng, due = np.random.default_rng(2), time.monotonic()
        while not self.over.is_set():
            seen: list[list[Glimpse]] = [[], []]
            for _ in range(round(FPS * BATCH_S)):
                self._envs.step(np.clip(rng.normal(0, 1, (2, 4)), -1, 1).astype(np.float32))
                for slot, glimpses in enumerate(seen):
                    glimpses.append(self._envs.glimpse(slot))
            for folder, glimpses in zip(self._folders, seen, strict=True):
                last = glimpses[-1].episode
                kept = [one for one in glimpses if one.episode == last and one.poses.size]
                if kept:  # after a reset there is nothing to draw yet
                    folder.write("any", FrameBuffer(TASK, last, FPS, told=True, at=time.time(), glimpses=kept))
            due += BATCH_S
            self.over.wait(max(0.0, due - time.monotonic()))


class Home:
    """A laptop's mirror, kept up to date by a thread; counts the pictures of both agents."""

    def __init__(self, folder: Path, transport: Session) -> None:
        self.folder, self.transport, self.mirror = folder, transport, Mirror(folder)
        self.pictures = 0
        self.newest: store.Manifest | None = None
        self._over = threading.Event()
        self._agents = LiveAgents(self.mirror, say=print)
        self._readers = [RingReader(folder / "v1/runs" / RUN / str(slot) / "live/any.ring") for slot in (0, 1)]
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        news = self.transport.listing()
        while not self._over.is_set():
            for offer in self.mirror.wanted(news.offers, changed=True):
                self.newest = self.mirror.bring(offer, self.transport.fetch).manifest or self.newest
            self._agents.turn(self.transport)
            for reader in self._readers:
                self.pictures += sum(checked(cell.kind, cell.payload)[0]["frames"] for cell in reader.newer())
            news = self.transport.wait(0.05)


def bytes_down(port: int) -> int:
    """What the server has sent over its connections, and was told to have come (ss(8), bytes_acked)."""
    said = subprocess.run(
        ["ss", "-tinH", "state", "established", f"sport = :{port}"],
        capture_output=True, text=True, timeout=LIMIT_S, check=True,
    )  # fmt: skip
    return sum(map(int, re.findall(r"bytes_acked:(\d+)", said.stdout)))


@contextmanager
def at_home(server: Sshd, laptop: Laptop, port: int, folder: Path, shared: store.Shared) -> Iterator[Home]:
    remote = Remote(
        host="127.0.0.1", user=server.user, port=port, path=str(shared.path), key=laptop.key,
        known_hosts=laptop.known_hosts, command=str(Path(sys.executable).parent / "syncd"),
    )  # fmt: skip
    transport = open_transport(remote, "openssh", client=folder.name)
    try:
        with Home(folder, transport) as home:
            yield home
    finally:
        transport.close()


def until(holds: Callable[[], object], what: str) -> float:
    """Seconds until it does."""
    began = time.monotonic()
    while not holds():
        if time.monotonic() - began > LIMIT_S:
            raise TimeoutError(what)
        time.sleep(0.002)
    return time.monotonic() - began


def brought(home: Home, shared: store.Shared, seq: int) -> float:
    """Seconds from a policy's publication to its file in the mirror."""
    wanted = publish_one(shared, 1, seq, wide=WIDE).version
    return until(lambda: home.newest is not None and home.newest.version == wanted, "the policy")


def on_the_line(rows: list[list[Any]]) -> None:
    wishes = tuple(Wish(slot, "any", FPS) for slot in (0, 1))
    with tempfile.TemporaryDirectory() as scratch, throw_away_sshd() as server:
        shared = store.Shared(Path(scratch) / "shared")
        publish_one(shared, 1, 1, wide=WIDE)
        store.make_shared_folder(shared.slot(RUN, 1).path)
        agents = Agents(shared)
        agents.start()
        fast = server.new_client("fast")
        with at_home(server, fast, server.port, Path(scratch) / "fast", shared) as home:
            with Renewing(home.folder / "v1/runs" / RUN / FILE, wishes):
                until(lambda: home.pictures > 3 * FPS, "pictures")
                before, seen, began = bytes_down(server.port), home.pictures, time.monotonic()
                time.sleep(LINE_S)
                took = time.monotonic() - began
                rows.append(["line, two agents", "kB/s", (bytes_down(server.port) - before) / took / 1000, 15])
                rows.append(["line, two agents", "pictures/s each", (home.pictures - seen) / took / 2, FPS])
            time.sleep(QUIET_AFTER_S)
            before = bytes_down(server.port)
            time.sleep(LINE_S)
            rows.append(
                ["line, nobody watches any more", "kB/s", (bytes_down(server.port) - before) / LINE_S / 1000, 0]
            )
        with slow_link(server.port, SLOW) as port:
            slow = server.new_client("slow")
            through(port, server, slow)
            with at_home(server, slow, port, Path(scratch) / "slow", shared) as home:
                until(lambda: home.newest, "the first policy")
                alone, beside, rates, seq = [], [], [], 1
                for _ in range(POLICIES):
                    seq += 1
                    alone.append(brought(home, shared, seq))
                    with Renewing(home.folder / "v1/runs" / RUN / FILE, wishes):
                        seen = home.pictures
                        until(lambda seen=seen: home.pictures > seen + FPS, "pictures")  # type: ignore[misc]
                        seen, began = home.pictures, time.monotonic()
                        time.sleep(8.0)
                        rates.append((home.pictures - seen) / (time.monotonic() - began) / 2)
                        seq += 1
                        beside.append(brought(home, shared, seq))
                    time.sleep(QUIET_AFTER_S)
                rows.append(["256 kbit/s, 300 ms", "pictures/s each", statistics.median(rates), 15])
                rows.append(["256 kbit/s, 300 ms", "policy, s", statistics.median(alone), ""])
                later = statistics.median(b / a for a, b in zip(alone, beside, strict=True))
                rows.append(["256 kbit/s, 300 ms", "policy while watched, times", later, 1.1])
        agents.over.set()
        agents.join()


def main() -> None:
    """Measure, print and save."""
    if missing := missing_sshd_parts():
        sys.exit(f"not there: {', '.join(missing)}")
    rows: list[list[Any]] = []
    found = trained(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS)
    for what, place in (("steps/s", 0), ("processor time a step", 1)):
        of = [watched[place] / alone[place] for watched, alone in zip(found[True], found[False], strict=True)]
        rows.append(["training, two lanes watched", f"{what}, times", statistics.mean(of), 0.99 if not place else 1.01])
        spread = statistics.stdev(of) / len(of) ** 0.5 if len(of) > 1 else float("nan")
        rows.append(["training, two lanes watched", f"{what}, standard error", spread, ""])
    on_the_line(rows)
    rows = [[what, unit, f"{value:.4g}", aim] for what, unit, value, aim in rows]
    for row in rows:
        print(*row, sep="; ", flush=True)
    figures.save("viewer_link", ["what", "unit", "value", "aim"], rows)


if __name__ == "__main__":
    main()
