"""kill -9 at every contact of a program with the disk, and in the middle of every write, to prove what a kill leaves.

`python guillotine.py TEST_FILE FOLDER` takes three functions of TEST_FILE: `prepare(folder)` makes the state before;
`program(copy, fall)` works in a copy of it, and calls `fall` where its contacts begin to count; `look(copy)` says what
is there afterwards, and may have a successor go on first. For k = 1, 2, … a forked process dies at its k-th contact;
one JSON object a k, with how it ended; in the last one it lived.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from daemons import WORK_S

REPOSITORY = Path(__file__).parents[2]
#: How a process ends that nobody killed.
ORDERLY = 7
#: What changes a disk. `open` is counted where it writes, and so is every write to what it opened.
CALLS = ("fsync", "replace", "rename", "link", "unlink", "rmdir", "mkdir")


class Guillotine:
    """Falls at the k-th contact; a write is cut in half by it."""

    def __init__(self, k: int | None) -> None:
        self.k = k
        self.contacts: list[str] = []

    def contact(self, name: str, last_act: Callable[[], Any] | None = None) -> None:
        self.contacts.append(name)
        if self.k is not None and len(self.contacts) == self.k:
            if last_act:
                last_act()
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        for name in CALLS:
            setattr(os, name, self._counted(name, getattr(os, name)))
        real_open = builtins.open

        def counting_open(path: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
            if not set(mode) & set("wxa"):
                return real_open(path, mode, *args, **more)
            self.contact("open")
            return Writing(real_open(path, mode, *args, **more), self)

        builtins.open = counting_open  # type: ignore[assignment]

    def _counted(self, name: str, real: Any) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            self.contact(name)
            return real(*args, **more)

        return call


class Writing:
    """An open file whose writes are counted."""

    def __init__(self, file: io.BufferedWriter, guillotine: Guillotine) -> None:
        self.file, self.guillotine = file, guillotine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)

    def write(self, data: bytes) -> int:
        def half() -> None:
            self.file.write(data[: len(data) // 2])
            self.file.flush()

        self.guillotine.contact("write", half)
        return self.file.write(data)


def in_a_fork(act: Callable[[], object]) -> int:
    """ORDERLY, or minus the signal that ended it."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - nothing may leave a fork but by its exit
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(ORDERLY)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_at_every_write(test_file: str, folder: Path) -> list[dict[str, Any]]:
    """What `look` of the test file said after each death, in order: all but the last one were killed."""
    done = subprocess.run(
        [sys.executable, __file__, test_file, str(folder)], capture_output=True, text=True, timeout=WORK_S, check=False,
        env={"PYTHONPATH": f"{REPOSITORY}:{Path(__file__).parent}", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [record["died"] for record in records] == [-signal.SIGKILL] * (len(records) - 1) + [ORDERLY]
    return records


def main(test_file: Path, folder: Path) -> None:
    spec = importlib.util.spec_from_file_location(test_file.stem, test_file)
    assert spec is not None
    assert spec.loader is not None
    test = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(test)
    prepared = folder / "prepared"
    prepared.mkdir()
    test.prepare(prepared)
    k, died = 0, -signal.SIGKILL
    while died == -signal.SIGKILL:
        k += 1
        copy = folder / str(k)
        shutil.copytree(prepared, copy)
        died = in_a_fork(lambda copy=copy, k=k: test.program(copy, Guillotine(k).install))  # type: ignore[misc]
        print(json.dumps({"k": k, "died": died, **test.look(copy)}), flush=True)
        shutil.rmtree(copy)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
