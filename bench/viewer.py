"""What the page costs: its weight, how fast it is there, and what it takes while nothing or much happens on it.

`python bench/viewer.py [HEAP_MINUTES]` opens pages of real viewers in Debian's Chromium, without a GPU: one with an
agent (a small scene, ten batches of three pictures a second), one of 100 runs with 1,000 jobs. The heap is looked at
after HEAP_MINUTES (10) of an agent and after a tenth of them, each time behind a collection, and told as an hour's
growth. Step to screen is what the tile says itself, which is true where job and page share a clock. Writes viewer.csv.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import figures

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from browser import WEBGL, Pages, a_browser, a_viewer, missing_browser_parts  # noqa: E402
from fake_agents import FakeAgent, a_header, live_folder, put_scene, scene_bytes, swing  # noqa: E402
from watched_runs import a_watched_run  # noqa: E402

from orchestrator.run.rundir import load_run  # noqa: E402

HEAP_MINUTES = 10.0
LOOK_S = 10.0
#: What a page loads with the first word of agents.
AGENTS = {"tiles.js", "scene.js", "playback.js", "orbit.js"}
#: Mbit/s and ms of a slow line, there and back.
SLOW_BITS_S, SLOW_MS = 1_000_000, 100
SLOTS, JOBS, RUNS = 100, 10, 100
_BEHIND = re.compile(r"([\d.]+) s behind")
ENV = {name: value for name, value in os.environ.items() if name != "DISPLAY"} | {"SSH_CONNECTION": "1 2 3 4"}


class Player(threading.Thread):
    """Shows an agent of `run` that swings, until it is over."""

    def __init__(self, shared: Path, run: str) -> None:
        super().__init__(daemon=True)
        folder = live_folder(shared, run, 0)
        folder.mkdir(parents=True, exist_ok=True)
        self._agent = FakeAgent(folder, scene=put_scene(folder, scene_bytes(a_header())))
        self.over = threading.Event()

    def run(self) -> None:
        """Play until it is over."""
        for k in itertools.count():
            if self.over.wait(0.1):
                return
            self._agent.pose(*(swing(3 * k + i) for i in range(3)), at=time.time(), step=3 * k + 1)


def memory_mb(pid: int) -> float:
    """Resident, of its own."""
    said = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in said.splitlines() if line.startswith("Private_")) / 1000


def server_pid(folder: Path) -> int:
    """The viewer's that runs in `folder`."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if b"viewer" in words and Path(os.readlink(entry / "cwd")) == folder:
                    return int(entry.name)
            except OSError:
                continue
    raise LookupError("no viewer runs there")


class Counted:
    """A page, what it loaded, and messages of its socket."""

    def __init__(self, pages: Pages, url: str, *, slow: bool = False) -> None:
        self.page = pages.open("about:blank")
        self.line = self.page.context.new_cdp_session(self.page)
        self.line.send("Network.enable")
        self.line.send("Performance.enable")
        if slow:
            conditions = {
                "latency": SLOW_MS,
                "downloadThroughput": SLOW_BITS_S / 8,
                "uploadThroughput": SLOW_BITS_S / 8,
            }
            self.line.send("Network.emulateNetworkConditions", {"offline": False, **conditions})
        self.messages = 0
        self.line.on("Network.webSocketFrameReceived", self._heard)
        began = time.monotonic()
        self.page.goto(url)
        self.page.locator("h2").first.wait_for()
        self.there_s = time.monotonic() - began

    def _heard(self, _told: Any) -> None:
        self.messages += 1

    def loaded(self, without: Collection[str] = ()) -> list[float]:
        """Bytes on the line of each file."""
        entries = "performance.getEntriesByType('navigation').concat(performance.getEntriesByType('resource'))"
        found = self.page.evaluate(f"{entries}.map((one) => [one.name, one.transferSize])")
        own = {name.partition("#")[0].rpartition("/")[2]: size for name, size in found}
        return [float(size) for name, size in own.items() if name not in {*without, "favicon.ico"}]

    def measure(self, name: str) -> float:
        """One of Chromium's own."""
        found = self.line.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in found if one["name"] == name))

    def busy_ms_s(self, seconds: float) -> float:
        """Milliseconds of its main thread a second."""
        before, began = self.measure("TaskDuration"), time.monotonic()
        self.page.wait_for_timeout(1000 * seconds)
        return 1000 * (self.measure("TaskDuration") - before) / (time.monotonic() - began)

    def heap_mb(self) -> float:
        """Behind a collection."""
        self.line.send("HeapProfiler.collectGarbage")
        return self.measure("JSHeapUsedSize") / 1e6


@contextmanager
def an_agent(folder: Path) -> Iterator[Path]:
    """A run with one agent at play; its folder."""
    made = a_watched_run(folder / "run", time.time(), slots=2, jobs=3)
    player = Player(made.path / "shared", load_run(made).run_id)
    player.start()
    try:
        yield made.path
    finally:
        player.over.set()
        player.join()


def of_a_page(pages: Pages, folder: Path, heap_minutes: float) -> Iterator[tuple[str, str, float, Any]]:
    """(what, unit, value, aim) of a page with one agent."""
    with an_agent(folder) as run, a_viewer(folder, str(run), env=ENV) as url:
        pid = server_pid(folder)
        before, began = figures.processor_s(pid), time.monotonic()
        time.sleep(LOOK_S)
        yield (
            "server, nobody looks",
            "ms in 10 s",
            1e4 * (figures.processor_s(pid) - before) / (time.monotonic() - began),
            1,
        )
        quick = Counted(pages, url)
        yield "page", "s on loopback", quick.there_s, 0.5
        quick.page.locator('[data-agent="0"]').get_by_text("in training · slot 0").wait_for()
        behind = []
        for _ in range(100):
            quick.page.wait_for_timeout(200)
            if found := _BEHIND.search(quick.page.locator('[data-agent="0"]').inner_text()):
                behind.append(float(found[1]))
        yield "step to screen, 95 of 100", "s", sorted(behind)[int(0.95 * len(behind))], 1.0
        before, began = figures.processor_s(pid), time.monotonic()
        yield "page with an agent", "ms a second", quick.busy_ms_s(LOOK_S), ""
        yield (
            "server, one page",
            "% of a core",
            100 * (figures.processor_s(pid) - before) / (time.monotonic() - began),
            2,
        )
        yield "server, one page", "MB", memory_mb(pid), 40
        other = pages.open("about:blank")  # what is in front; the page does not know it without a window, so it is told
        quick.page.evaluate(
            "Object.defineProperty(document, 'hidden', {get: () => true});"
            "Object.defineProperty(document, 'visibilityState', {get: () => 'hidden'});"
            "document.dispatchEvent(new Event('visibilitychange'))"
        )
        quick.page.wait_for_timeout(2_000)
        heard = quick.messages
        quick.page.wait_for_timeout(1000 * LOOK_S)
        yield "hidden page, behind 2 s", "messages in 10 s", quick.messages - heard, 0
        other.close()
        quick.page.close()
        slow = Counted(pages, url, slow=True)
        yield "page", "s at 1 Mbit/s, 100 ms", slow.there_s, 3
        slow.page.close()
        long = Counted(pages, url)
        long.page.wait_for_timeout(6_000 * heap_minutes)
        first, began = long.heap_mb(), time.monotonic()
        long.page.wait_for_timeout(54_000 * heap_minutes)
        last, took_h = long.heap_mb(), (time.monotonic() - began) / 3600
        yield "heap of a page with an agent", "MB", last, 50
        yield "heap of a page with an agent", "MB more an hour", (last - first) / took_h, ""
        long.page.close()


def of_a_still_page(pages: Pages, folder: Path) -> Iterator[tuple[str, str, float, Any]]:
    """Of one on which nothing happens: a run that has ended."""
    made = a_watched_run(folder / "run", time.time() - 1e6, slots=2, jobs=3)
    with a_viewer(folder, str(made.path), env=ENV) as url:
        page = Counted(pages, url)
        page.page.wait_for_timeout(3_000)
        for words, some, aim in (("page", page.loaded(without=AGENTS), (8, 150)), ("agents' part", page.loaded(), "")):
            before = page.loaded(without=AGENTS) if words != "page" else []
            yield words, "files", len(some) - len(before), aim[0] if aim else ""
            yield words, "kB", (sum(some) - sum(before)) / 1000, aim[1] if aim else ""
        yield "still page", "ms a second", page.busy_ms_s(LOOK_S), 1
        page.page.close()


def of_many(pages: Pages, folder: Path) -> Iterator[tuple[str, str, float, Any]]:
    """Of many runs and jobs."""
    now = time.time()
    a_watched_run(folder / "runs/big", now, slots=SLOTS, jobs=JOBS)
    for k in range(RUNS - 1):
        a_watched_run(folder / f"runs/r{k}", now, name=f"r{k}", slots=1, jobs=1, tree=False)
    with a_viewer(folder, str(folder / "runs"), env=ENV) as url:
        page = Counted(pages, url)
        page.page.close()
        yield "100 runs, 1,000 jobs, first picture", "s", page.there_s, 1
        again = Counted(pages, url)
        yield "100 runs, 1,000 jobs, opened again", "s", again.there_s, 1


def main() -> None:
    """Measure, print and save."""
    if missing := missing_browser_parts():
        sys.exit(f"not there: {', '.join(missing)}")
    heap_minutes = figures.number(1, HEAP_MINUTES)
    rows = []
    with a_browser(*WEBGL) as pages:
        for part in (of_a_still_page, partial(of_a_page, heap_minutes=heap_minutes), of_many):
            with tempfile.TemporaryDirectory() as folder:
                for what, unit, value, aim in part(pages, Path(folder)):
                    rows.append([what, unit, f"{value:.4g}", aim])
                    print(*rows[-1], sep="; ", flush=True)
    figures.save("viewer", ["what", "unit", "value", "aim"], rows)


if __name__ == "__main__":
    main()
