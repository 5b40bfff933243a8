"""The `trainer` command. Heavy imports (torch, the simulator) wait until a command needs them.

Exit codes: see `trainer.errors`.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorleg.cli import add_commands, new_app
from anchorleg.job import Job
from anchorleg.output import Waiting, end_with_error, ending_well, say, words_of
from anchorleg.signals import bear_hand_over
from trainer.commands import ConfigOption, PresetOption, SetOption
from trainer.commands.actors import actors
from trainer.commands.autotune import autotune, presets
from trainer.commands.curves import compare, plot, wandb
from trainer.commands.demos import alone
from trainer.commands.demos import app as demos
from trainer.commands.policies import evaluate, export, play
from trainer.errors import (
    ConfigError,
    DeviceError,
    OutOfMemoryError,
    RanksError,
    SaveError,
    TrainerError,
)
from trainer.machine.drawing import drop_foreign_variables
from trainer.machine.launching import RANK, STARTER, RankPlace, check_ranks, check_starter, launch, leave_code, place_of
from trainer.machine.processes import end_with
from trainer.machine.shortage import words_of_shortage

if TYPE_CHECKING:
    from trainer.config.read import LoadedSection
    from trainer.machine.group import Group

#: What no light installation of a login node has, and not the extra `trainer` either → the extra that brings it.
_EXTRAS = {"onnx": "export", "onnxscript": "export", "pyarrow": "video", "av": "show", "matplotlib": "show"}

RunDirOption = Annotated[Path | None, typer.Option(help="Run folder. Default: runs/<name>.")]
SharedDirOption = Annotated[
    Path | None, typer.Option(help="Where policies are published. Default: shared/ in --run-dir.")
]
AcceptOption = Annotated[bool, typer.Option("--accept-contributions", help="Use the experience that laptops send.")]
RanksOption = Annotated[
    int, typer.Option(min=1, max=256, help="Processes that train together. algorithm.shards must be a multiple.")
]


def train(
    config: ConfigOption = None,
    preset: PresetOption = None,
    settings: SetOption = None,
    run_dir: RunDirOption = None,
    shared_dir: SharedDirOption = None,
    accept_contributions: AcceptOption = False,
    ranks: RanksOption = 1,
) -> None:
    """Train a policy. Repeat the command to resume.

    Exit code 0: the training is complete. 75: it saved and ended, as asked. A job of the orchestrator takes its
    config and folders from ANCHORLEG_* variables.
    """
    began_at = time.time()
    from trainer.config.read import read_section

    check_starter(os.environ)
    job, place = Job.from_environment(), place_of(os.environ)
    asked = read_section(config or (job.config if job else None), preset, settings or [])
    for warning in asked.warnings if job is None else ():  # the orchestrator has warned of what the user wrote
        say(f"warning: {warning}", file=sys.stderr)
    check_ranks(asked.training.algorithm.shards, ranks)
    if job is None:
        job = _alone(asked, run_dir, shared_dir, accepts_contributions=accept_contributions)
    if place is None and ranks > 1:
        raise typer.Exit(launch(job, ranks, os.environ, [sys.executable, *sys.orig_argv[1:]], _tell))
    job.listen()
    limit_s = asked.training.max_runtime_seconds
    if limit_s is not None:
        job.deadline = min(job.deadline or float("inf"), began_at + limit_s)
    raise typer.Exit(_train(job, asked) if place is None else _train_together(job, asked, place))


app = new_app("Train and evaluate policies on Meta-World, an arm that reaches, or any Gymnasium environment.")
add_commands(app, "Train", train, presets, autotune)
app.add_typer(demos, name="demos", rich_help_panel="Train")
add_commands(app, "Look", evaluate, play, plot, compare)
add_commands(app, "Share", actors, export, wandb)


def _alone(asked: LoadedSection, run_dir: Path | None, shared_dir: Path | None, *, accepts_contributions: bool) -> Job:
    folder = (run_dir or Path("runs") / (asked.run_name or asked.training.preset)).resolve()
    shared = shared_dir.resolve() if shared_dir else None
    job = alone(folder, shared_dir=shared, accepts_contributions=accepts_contributions)
    with contextlib.suppress(OSError):  # a training goes on, whether anybody reads this or not
        say(f"training in {folder}; Ctrl-C saves and exits, the same command resumes")
    return job


def _train_together(job: Job, asked: LoadedSection, place: RankPlace) -> int:
    """As one of several ranks: the first gives the exit code, the others 0 unless they fail themselves."""
    from trainer.machine.group import Group

    by_srun = RANK not in os.environ
    if not by_srun:
        end_with(int(os.environ[STARTER]))
    if place.rank:
        bear_hand_over()  # it is rank 0's
    group = Group.alone()
    try:
        group = Group.join(place, job.attempt_dir)
        code = _train(job, asked, group)
        if place.rank == 0:
            leave_code(job.attempt_dir, code)  # before the others see this one leave
    except Exception as error:
        code = error.exit_code if isinstance(error, TrainerError) else 1
        leave_code(job.attempt_dir, code)  # as above
        if place.rank and group.size > 1 and isinstance(error, RanksError):
            raise typer.Exit(code) from None  # the first says so
        raise
    finally:
        group.close()
    return 0 if by_srun else code  # whatever is not 0 has srun kill the others before they have left


def _train(job: Job, asked: LoadedSection, group: Group | None = None) -> int:
    gc.disable()  # what is imported stays: looking for garbage in it would be a tenth of the start
    with Waiting("starting"):
        from trainer.config.wandb import wandb_environment
        from trainer.machine import device as machine
        from trainer.training.begin import run
        from trainer.training.features.progress import TrainingDisplay
        from trainer.training.memory import shortage

    gc.freeze()
    gc.enable()
    try:
        environ = {**os.environ, **wandb_environment(asked.wandb, os.environ)}
        if group is not None and not group.is_first:
            return run(job, asked.training, TrainingDisplay(is_silent=True), group=group)
        with Waiting("starting") as line:
            return run(job, asked.training, TrainingDisplay(line), group=group, environ=environ)
    except (MemoryError, RuntimeError, OSError) as error:
        short = shortage(error, asked.training, machine.choose_device(asked.training.device).type)
        if short is not None:
            raise short from error
        if machine.is_of_the_gpu(error):
            raise DeviceError("gpu.failed", why=" ".join(str(error).split())[:160]) from error
        if not isinstance(error, OSError):
            raise
        place = error.filename or job.attempt_dir
        raise SaveError("save.unwritable", path=place, why=error.strerror or error) from error


def _tell(sentence: str) -> None:
    say(f"trainer: {sentence}", file=sys.stderr)


def _of_memory_or_gpu(error: BaseException) -> TrainerError | None:
    """The sentence for what a command beside `train` met, such as a GPU on which a training has all memory."""
    from trainer.machine.device import is_of_the_gpu

    if (words := words_of_shortage(error)) is not None:
        return OutOfMemoryError("memory.short", why=words)
    if is_of_the_gpu(error):
        return DeviceError("gpu.unusable", why=" ".join(str(error).split())[:160])
    return None


def main() -> None:
    """Every known error becomes one sentence and its exit code. Errors: SystemExit; a defect's own."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it tells of every font list that it makes
    if (note := drop_foreign_variables()) is not None:
        _tell(note)
    try:
        ending_well(app, runs_foreign=True)
    except TrainerError as error:
        end_with_error("trainer", error, error.exit_code)
    except ModuleNotFoundError as error:
        top = (error.name or "").partition(".")[0]
        if top in {"", "anchorleg", "syncd", "trainer"}:  # a defect: it is in every installation
            raise
        extra = _EXTRAS.get(top, "trainer")
        words = f"{error.name} is not installed here: in Anchorleg's checkout, run pip install '.[{extra}]'"
        end_with_error("trainer", words, ConfigError.exit_code)
    except (MemoryError, RuntimeError, OSError) as error:
        known = _of_memory_or_gpu(error)
        if known is None and isinstance(error, OSError):
            known = SaveError("output.unwritable", why=words_of(error))
        if known is None:
            raise
        end_with_error("trainer", known, known.exit_code)
    except KeyboardInterrupt:
        end_with_error("trainer", "interrupted", 130)
