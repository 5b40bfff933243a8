"""Trains contenders one after another, or some at once, each in a process and a folder of its own, to go on from."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from anchorleg.files import make_folder, read_json_or_none, write_json
from anchorleg.job import HANDED_OVER, attempt_numbers
from anchorleg.places import begin_id
from anchorleg.signals import python_path
from trainer.config.section import TrainingSection, resolve
from trainer.config.training import SECTIONS, SEEDS, Training, differences
from trainer.errors import ConfigError, TrainerError
from trainer.machine.drawing import FOUND

#: A bar moves as often as a training reports.
_LOOK_S = 1.0
#: A training that is asked to end saves first.
_SAVE_S = 120.0
#: How the names of variables begin that say of a job of the orchestrator what it is.
_OF_A_JOB = "ANCHORLEG_"


class ContestError(TrainerError):
    """A contender's training failed. What it said stands in its `train.log`; the others' files are good."""


@dataclass(frozen=True, eq=False)
class Contestant:
    """One training: `folder` is its run folder."""

    folder: Path
    training: Training

    @property
    def name(self) -> str:
        """As a bar calls it."""
        return self.folder.name

    @property
    def slot_dir(self) -> Path:
        """Where its attempts lie."""
        return self.folder / "slots" / "0"

    @property
    def log(self) -> Path:
        """What it said."""
        return self.folder / "train.log"

    def step(self) -> int:
        """As it last reported."""
        told = None
        with contextlib.suppress(OSError):  # the training itself says what is wrong there
            numbers = attempt_numbers(self.slot_dir)
            told = (
                read_json_or_none(self.slot_dir / "attempts" / str(numbers[-1]) / "progress.json") if numbers else None
            )
        return min(int((told or {}).get("step", 0)), self.training.total_steps)


def entries(chosen: Mapping[str, Training], seeds: int, folder: Path) -> list[Contestant]:
    """Each of them with each of `seeds` seeds, from its own on: `folder/ppo-0`, `folder/ppo-1`, … Errors: ConfigError
    where there are not so many.
    """
    for name, one in chosen.items():
        if one.seed + seeds > SEEDS:
            raise ConfigError("compare.seeds-too-large", name=name, seeds=seeds, first=one.seed, largest=SEEDS - 1)
    return [
        Contestant(folder / f"{name.replace(':', '.')}-{seed}", one.changed(seed=seed))
        for name, one in chosen.items()
        for seed in range(one.seed, one.seed + seeds)
    ]


def train_all(found: Sequence[Contestant], at_once: int, out: Console) -> None:
    """Train all until they are complete. Errors: ConfigError, ContestError; KeyboardInterrupt once all that run have
    saved.
    """
    for entry in found:
        _prepare(entry)
    waiting = list(found)
    running: dict[Contestant, subprocess.Popen[bytes]] = {}
    reached: dict[Contestant, int] = {}
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=out, disable=not out.is_terminal) as progress:
        bars = {entry: progress.add_task(entry.name, total=entry.training.total_steps) for entry in found}
        try:
            while waiting or running:
                while waiting and len(running) < at_once:
                    entry = waiting.pop(0)
                    running[entry] = _start(entry)
                    if not out.is_terminal:
                        out.print(f"training {entry.name}")
                _look(running, waiting, reached, bars, progress)
        except BaseException:
            _end(running.values())
            raise


def _prepare(entry: Contestant) -> None:
    """Its settings where every other program finds them. Errors: ConfigError where it was begun with others, or cannot
    be begun. What an older program did not write down is as it is left out.
    """
    path, value = entry.slot_dir / "config.json", entry.training.model_dump(mode="json")
    try:
        known = read_json_or_none(path)
        if known is None:
            begin_id(entry.folder)  # before it has slots
            make_folder(entry.slot_dir)
            write_json(path, value)
    except OSError as error:
        raise ConfigError("compare.folder-unusable", folder=entry.folder, why=error.strerror) from None
    if known is not None and (others := _other_settings(known, entry.training)):
        raise ConfigError("compare.begun-otherwise", folder=entry.folder, others=others)


def _other_settings(known: object, training: Training) -> str:
    """What is not as in `known`, a section that was written down; empty where all is."""
    try:
        then = resolve(TrainingSection.model_validate(known))
    except ValidationError:
        return "this version does not know all of them"
    before, now = then.model_dump(mode="json"), training.model_dump(mode="json")
    rest = [
        f"{name} {before[name]} → {now[name]}"
        for name in Training.model_fields
        if name not in (*SECTIONS, "seed") and before[name] != now[name]
    ]
    return ", ".join([*differences(before, training), *rest])


def _start(entry: Contestant) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "trainer", "train", "--config", str(entry.slot_dir / "config.json")]
    with entry.log.open("ab") as log:
        return subprocess.Popen(
            [*command, "--run-dir", str(entry.folder)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={**_outside_a_job(os.environ), **python_path()},
            start_new_session=True,  # Ctrl-C is for us: we end them, and they save
        )  # fmt: skip


def _outside_a_job(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without the orchestrator's job that this process may be: each contender has a folder of its own."""
    return {name: value for name, value in environ.items() if name == FOUND or not name.startswith(_OF_A_JOB)}


def _look(
    running: dict[Contestant, subprocess.Popen[bytes]],
    waiting: list[Contestant],
    reached: dict[Contestant, int],
    bars: dict[Contestant, TaskID],
    progress: Progress,
) -> None:
    for entry, process in list(running.items()):
        progress.update(bars[entry], completed=entry.step())
        if process.poll() is None:
            continue
        del running[entry]
        if process.returncode == HANDED_OVER:
            if entry.step() <= reached.get(entry, -1):
                raise ContestError("compare.no-step", name=entry.name, why=_last_words(entry.log))
            reached[entry] = entry.step()
            waiting.insert(0, entry)
        elif process.returncode != 0:
            raise ContestError(
                "compare.training-failed", name=entry.name, code=process.returncode, why=_last_words(entry.log)
            )
        else:
            progress.update(bars[entry], completed=entry.training.total_steps)
    time.sleep(_LOOK_S if running else 0)


def _last_words(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return f"{lines[-1][:300]} ({log})" if lines else f"see {log}"


def _end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Have them save and exit; one that does not is killed."""
    living = [process for process in processes if process.poll() is None]
    for process in living:
        process.terminate()
    until = time.monotonic() + _SAVE_S
    for process in living:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.1, until - time.monotonic()))
        if process.poll() is None:
            process.kill()
            process.wait()
