"""Does this tree train the same bits as that commit? For changes of the code's form, on any machine.

`python tests/samebits.py BEFORE [--only NAME]` lays out the commit BEFORE beside this tree, makes the same short
trainings with both, and compares what they came to: every tensor of the newest checkpoint and every row of the replay
by its bytes (not by its name or its file, which such a change may change), and the rows of metrics.

* mt10, mt10-python: MT10 stepped natively, and by Python;
* handed-over: MT10 in four attempts;
* contributed: point masses, with others' segments, in three attempts;
* one for each preset: a few hundred updates, fewer of the large nets.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
from safetensors import safe_open

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 1800
HANDED_OVER = 75
MT10: dict[str, Any] = {
    "preset": "debug",
    "total_steps": 1500,
    "random_steps": 200,
    "actor_hidden": "[16]",
    "critic_hidden": "[16]",
    "batch_size": 20,
    "buffer_size": 1000,
    "checkpoint_interval": 150,
    "metrics_interval": 70,
    "horizon": 37,
}
SHORT: dict[str, Any] = {
    "num_envs": 10,
    "buffer_size": 20_000,
    "random_steps": 500,
    "horizon": 50,
    "checkpoint_interval": 400,
    "metrics_interval": 200,
    "evaluation_interval": 0,
    "evaluation_goals": 0,
    "num_workers": 0,
    "threads": 1,
}
#: Steps of the large nets cost tens of milliseconds an update.
PRESETS: dict[str, dict[str, Any]] = {
    "guide": {"total_steps": 2_500},
    "aggressive": {"total_steps": 1_500, "buffer_size": 20_000},
    "mclean": {"total_steps": 700, "batch_size": 640},
    "best": {"total_steps": 560, "batch_size": 256},
    "tiny": {"total_steps": 1_500, "num_envs": 1},
    "debug": {"total_steps": 3_000},
}
#: After which row of metrics each attempt of `handed-over` is asked to end.
ASKED_AT = (280, 630, 1050)
#: Vector step → what is sent then, or a signal: one attempt each (tests' train_contributed.py).
SENT = [
    {"40": [0, 1, 2, 3], "70": "SIGUSR2"},
    {"20": list(range(4, 10)), "50": {"drop": "alice"}, "80": "SIGTERM"},
    {"10": list(range(10, 14))},
]


class Tree:
    """One state of the code, and what it trains below `runs`."""

    def __init__(self, code: Path, runs: Path) -> None:
        self.code, self.runs = code, runs

    def trained(self, name: str) -> Path:
        """The slot's folder of the training `name`, which is made where it is not there."""
        folder = self.runs / name
        if (folder / "made").exists():
            return folder / "slots" / "0"
        shutil.rmtree(folder, ignore_errors=True)
        if name == "contributed":
            self._contributed(folder)
        elif name == "handed-over":
            for step in ASKED_AT:
                self._attempt(folder, MT10, until=step)
            self._attempt(folder, MT10)
        elif name in ("mt10", "mt10-python"):
            without = {"CC": "/none", "XDG_CACHE_HOME": str(self.runs / "cache")} if name == "mt10-python" else {}
            self._attempt(folder, MT10, **without)
        else:
            self._attempt(folder, {"preset": name, **SHORT, **PRESETS[name]})
        (folder / "made").touch()
        return folder / "slots" / "0"

    def _attempt(
        self, folder: Path, fields: Mapping[str, Any], *, until: int | None = None, **environment: str
    ) -> None:
        command = [sys.executable, "-m", "trainer", "train", "--run-dir", str(folder)]
        command += [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(
                command, cwd=self.code, env=self._environment(environment), stdout=said, stderr=subprocess.STDOUT
            )
            try:
                if until is not None:
                    _wait_for_row(folder, until, process)
                    process.send_signal(signal.SIGUSR2)
                code = process.wait(timeout=TIMEOUT_S)
            finally:
                process.kill()
                process.wait()
            if code != (0 if until is None else HANDED_OVER):
                said.seek(0)
                sys.exit(f"{self.code}: exit code {code} of {' '.join(command)}\n{said.read()[-2000:]}")

    def _contributed(self, folder: Path) -> None:
        program = next(self.code.glob("tests/**/train_contributed.py"))
        command = [sys.executable, str(program), str(folder), json.dumps(SENT), json.dumps({})]
        path = {"PYTHONPATH": os.pathsep.join([str(self.code), str(program.parent)])}
        done = subprocess.run(
            command, cwd=self.code, env=self._environment(path), capture_output=True, text=True, timeout=TIMEOUT_S,
            check=False,
        )  # fmt: skip
        codes = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else []
        if codes != [HANDED_OVER, HANDED_OVER, 0]:
            sys.exit(f"{program}: exit codes {codes}\n{(done.stdout + done.stderr)[-2000:]}")

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(self.code), **more}


def _wait_for_row(folder: Path, step: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        if any(row["to"] >= step for row in rows_of(folder / "slots" / "0")):
            return
        time.sleep(0.002)


def rows_of(slot: Path) -> list[dict[str, Any]]:
    """All whole rows of metrics of a slot's attempts, in order, without their clocks."""
    found = []
    for file in sorted(slot.glob("attempts/*/metrics.jsonl"), key=lambda path: int(path.parent.name)):
        lines = [json.loads(line) for line in file.read_text().split("\n")[:-1]]
        found += [{name: value for name, value in row.items() if name not in {"at", "wall_s"}} for row in lines]
    return [row for row in found if "to" in row]


def tensors_of(slot: Path) -> Counter[str]:
    """Each tensor of the slot's newest checkpoint, and each row of its replay: type, shape and sha256 of the bytes."""
    return Counter(_files(slot))


def _files(slot: Path) -> Iterator[str]:
    newest = max(slot.glob("attempts/*/checkpoints/*"), key=lambda path: int(path.name))
    for array in _arrays(newest.glob("*.safetensors")):
        yield _digest(array)
    for array in _arrays(slot.glob("attempts/*/rows/*.safetensors")):
        yield from map(_digest, array)  # which rows share a file depends on when somebody asked for a hand-over


def _arrays(files: Iterable[Path]) -> Iterator[npt.NDArray[Any]]:
    for file in sorted(files):
        with safe_open(file, "np") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - it is no dict
                yield tensors.get_tensor(name)


def _digest(array: npt.NDArray[Any]) -> str:
    return f"{array.dtype} {array.shape} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"


def differences(name: str, before: Path, after: Path) -> list[str]:
    """What two slots do not share, a line each."""
    theirs, ours = tensors_of(before), tensors_of(after)
    lines = [f"{name}: only before: {tensor} ({count} times)" for tensor, count in (theirs - ours).items()]
    lines += [f"{name}: only now: {tensor} ({count} times)" for tensor, count in (ours - theirs).items()]
    then, now = rows_of(before), rows_of(after)
    if len(then) != len(now):
        lines.append(f"{name}: {len(then)} rows of metrics before, {len(now)} now")
    for old, new in zip(then, now, strict=False):
        lines += [
            f"{name}: {field} at step {old['to']}: {old[field]} before, {new.get(field)} now"
            for field in old
            if old[field] != new.get(field)
        ]
    return lines


def laid_out(commit: str, folder: Path) -> Path:
    """The tree of `commit` in `folder`."""
    if not folder.exists():
        folder.mkdir(parents=True)
        subprocess.run(["tar", "-x", "-C", str(folder)], input=_git("archive", commit), check=True, timeout=TIMEOUT_S)
    return folder


def _git(*words: str) -> bytes:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True, timeout=TIMEOUT_S).stdout


def main() -> int:
    """Train, compare, and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before")
    names = ["mt10", "mt10-python", "handed-over", "contributed", *PRESETS]
    parser.add_argument("--only", action="append", choices=names)
    parser.add_argument("--place", type=Path, help="keep BEFORE's trainings there, and take what is kept")
    asked = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as temporary:
        here = Path(temporary)
        then = asked.place or here
        commit = _git("rev-parse", asked.before).decode().strip()
        before = Tree(laid_out(commit, then / commit / "code"), then / commit / "runs")
        after = Tree(ROOT, here / "after")
        for name in asked.only or names:
            slots = [tree.trained(name) for tree in (before, after)]
            lines = differences(name, *slots)
            rows = rows_of(slots[1])
            print(
                f"{name}: {'the same' if not lines else f'{len(lines)} differences'}"
                f" ({sum(tensors_of(slots[1]).values())} tensors, {len(rows)} rows,"
                f" {sum(row['updates'] for row in rows)} updates)",
                flush=True,
            )
            found += lines
    print("\n".join(found[:60]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
