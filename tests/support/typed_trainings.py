"""Programs typed in a folder, with nothing of the environment that tests run in; and trainings that they make there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daemons import WORK_S
from slot_digest import slot_digest

ROOT = Path(__file__).resolve().parents[2]
#: `python HANDING_OVER N`: as `python -m trainer`, which is asked to hand over after N vector steps.
HANDING_OVER = str(ROOT / "tests/support/handing_over.py")
PATHS = os.pathsep.join(str(ROOT / place) for place in ("", "tests/plugin", "tests/support"))


def run(folder: Path, *command: str | Path, expected: int = 0, **env: str) -> str:
    """All that Python said, and that it said it in sentences."""
    folder.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "OMP_NUM_THREADS": "1", "PYTHONPATH": PATHS}
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, env={**environment, **env}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=WORK_S, check=False,
    )  # fmt: skip
    assert done.returncode == expected, done.stdout
    assert "Traceback" not in done.stdout
    return done.stdout


def train(folder: Path, section: Mapping[str, Any], *command: str, expected: int = 0, **env: str) -> str:
    """`trainer train` with this section, or what `command` has in its place."""
    folder.mkdir(exist_ok=True)
    (folder / "training.json").write_text(json.dumps(section))
    words = (*(command or ("-m", "trainer")), "train", "--config", "training.json", "--run-dir", "run")
    return run(folder, *words, expected=expected, **env)


def bits_of(folder: Path) -> dict[str, Any]:
    """All that was trained; how many workers stepped may differ."""
    found = slot_digest(folder / "run/slots/0")
    del found["parts"]["run"][1]["numeric"]["workers"]
    return found


def attempts(program: str, run_dir: Path, plans: Any, fields: Any, *more: str) -> tuple[list[int], str]:
    """The exit codes of one attempt a plan, made by a program of tests/support, and all that they printed."""
    script = ROOT / "tests/support" / program
    words = (script, run_dir, json.dumps(plans), json.dumps(fields), *more)
    said = run(run_dir, *words, HOME=str(Path.home()))  # whose cache has the library in C
    *printed, codes = said.splitlines()
    return json.loads(codes), "\n".join(printed)
