"""The first hour: from `git clone` to the first training step of `make demo`, and how much is installed.

`python bench/first_hour.py [--small]` clones what is committed here into an empty folder and types `make demo` there,
with empty caches; packages come from where pip is told to look. CPU is that of all processes that the command started.
A training says every three seconds how far it is. Sizes are of packages on the disk, without pip and what Python
compiles. `--small` installs the base alone. What `orchestrator --help` costs, status_cpu.py tells. Writes
first_hour.csv.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import figures

ROOT = Path(__file__).resolve().parents[1]
AIMS = {"clone to first step": "75 s", "size of the base": "90 MB", "size of the trainer": "1,200 MB"}
LOOK_EVERY_S, GIVE_UP_S = 0.1, 1800.0


def cpu_of(folder: str) -> float:
    """CPU seconds of all processes with `folder` in their environment or command, and of their children that ended."""
    ticks = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.encode() in (process / "environ").read_bytes() + (process / "cmdline").read_bytes():
                ticks += sum(map(int, (process / "stat").read_text().rpartition(")")[2].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def is_training(checkout: Path) -> bool:
    """Whether a slot of the demo has made a step."""
    said = (path.read_text() for path in checkout.glob("runs/demo/slots/*/attempts/*/progress.json"))
    return any(json.loads(text)["step"] > 0 for text in said)


def size_of(venv: Path) -> str:
    """Megabytes of the packages in `venv`."""
    (packages,) = venv.glob("lib/python*/site-packages")
    files = [path for path in packages.rglob("*") if path.suffix != ".pyc" and path.is_file()]
    own = [path for path in files if not path.relative_to(packages).parts[0].startswith("pip")]
    return f"{sum(path.stat().st_blocks for path in own) * 512 / 1e6:.0f}"


def main() -> None:
    """Measure, print, write."""
    rows: list[tuple[str, str, str, str]] = []
    with tempfile.TemporaryDirectory() as name:
        caches = {word: f"{name}/{word}" for word in ("UV_CACHE_DIR", "PIP_CACHE_DIR", "XDG_STATE_HOME")}
        env, checkout, base = {**os.environ, **caches}, Path(name, "anchorleg"), Path(name, "base")
        seen = [(time.perf_counter(), 0.0)]
        subprocess.run(["git", "clone", "-q", "--no-local", ROOT, checkout], check=True)

        def wait_until(condition: Callable[[], bool]) -> None:
            while not condition():
                if child.poll() is not None or time.perf_counter() - seen[0][0] > GIVE_UP_S:
                    sys.exit("the demo ended, or takes too long")
                time.sleep(LOOK_EVERY_S)
            seen.append((time.perf_counter(), cpu_of(name)))

        if "--small" not in sys.argv:
            with subprocess.Popen(["make", "demo"], cwd=checkout, env=env, start_new_session=True) as child:
                try:
                    wait_until((checkout / ".venv/.ready").exists)
                    wait_until(lambda: is_training(checkout))
                finally:
                    with contextlib.suppress(OSError):
                        stop = [checkout / ".venv/bin/orchestrator", "stop", "--now", "--config", "examples/demo.json"]
                        subprocess.run(stop, cwd=checkout, env=env, check=False)
                        os.killpg(child.pid, signal.SIGTERM)
            for what, first, last in (("install", 0, 1), ("start to first step", 1, 2), ("clone to first step", 0, 2)):
                seconds, cpu = (f"{after - before:.1f}" for before, after in zip(seen[first], seen[last], strict=True))
                rows.append((what, seconds, cpu, ""))
        subprocess.run([sys.executable, "-m", "venv", base], check=True)
        for what, locks in (("base", ["base"]), ("trainer", ["torch", "trainer"])):
            if what == "base" or "--small" not in sys.argv:
                subprocess.run(["sh", "requirements/install.sh", base, *locks], cwd=checkout, env=env, check=True)
                rows.append((f"size of the {what}", "", "", size_of(base)))
    for row in rows:
        print(*(f"{cell} {unit}" for cell, unit in zip(row, ("", "s", "s of CPU", "MB"), strict=True) if cell), end="")
        print(f" (aim: {AIMS[row[0]]})" if row[0] in AIMS else "")
    if "--small" not in sys.argv:
        figures.save("first_hour", ("what", "seconds", "cpu_s", "mb"), rows)


if __name__ == "__main__":
    main()
