"""`trainer demos`: demonstrations, and what is learned from them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorleg.job import Job
from anchorleg.output import say, set_aside
from anchorleg.words import counted
from trainer.commands.options import ConfigOption, JsonOption, PresetOption, SetOption
from trainer.config.read import read_section
from trainer.errors import ConfigError

if TYPE_CHECKING:
    from trainer.demos.store import Demos

app = typer.Typer(help="Demonstrations: import, record and export them, and learn an encoder or a policy from them.")

OutOption = Annotated[Path, typer.Option(help="The folder that they go to; run again, it goes on where it was.")]
SizeOption = Annotated[int, typer.Option(min=16, max=1024, help="Pixels a side, as env.image_size.")]
CameraOption = Annotated[list[str] | None, typer.Option(help="This camera's films; may be repeated; left out: all.")]
TaskOption = Annotated[str | None, typer.Option(help="Episodes of this task alone, by its name there; left out: all.")]
DemosOption = Annotated[Path, typer.Option(help="A folder that `import` or `record` made.")]
WeightsOption = Annotated[
    Path | None,
    typer.Option(help="The file for network.encoder.weights: NAME.safetensors; left out: the policy alone is kept."),
]
RunDirOption = Annotated[
    Path | None,
    typer.Option(help="Where the policy and its checkpoints go; default: runs/fit-<name of --out, or of --demos>."),
]
StepsOption = Annotated[int, typer.Option(min=1, help="Steps of the policy, each of which earns a batch.")]
BatchOption = Annotated[int, typer.Option(min=2, max=65_536, help="Actions of a batch.")]
RateOption = Annotated[float, typer.Option(min=1e-9, max=1.0, help="Adam's learning rate.")]
EveryOption = Annotated[int, typer.Option(min=1, help="Steps between two measurements, each with a checkpoint.")]
WithoutOption = Annotated[bool, typer.Option("--without-actions", hidden=True)]


@app.command("import")
def import_(
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="A LeRobotDataset v3.0.")],
    out: OutOption,
    size: SizeOption = 64,
    camera: CameraOption = None,
    task: TaskOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decode the films of a LeRobotDataset v3.0 once into frames of one size. It can be killed, and goes on."""
    from trainer.demos.lerobot import import_lerobot

    with _progress("episodes") as progress:
        demos = import_lerobot(source, out, size, camera or [], progress, task)
    _show(demos, as_json=as_json)


@app.command()
def record(
    out: OutOption,
    policy: Annotated[
        str, typer.Option(help="scripted (of --config's environment), or a policy as `trainer play` takes it.")
    ] = "scripted",
    config: ConfigOption = None,
    preset: PresetOption = None,
    settings: SetOption = None,
    task: Annotated[str | None, typer.Option(help="This task alone; left out: each.")] = None,
    episodes: Annotated[
        int, typer.Option(min=1, max=100_000, help="Episodes of each task, each from another start.")
    ] = 50,
    camera: Annotated[list[str] | None, typer.Option(help="Films; may be repeated; left out: env.cameras.")] = None,
    size: Annotated[int | None, typer.Option(min=16, max=1024, help="Pixels a side; left out: env.image_size.")] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**32 - 1, help="Of the goals and starts; left out: the training's.")
    ] = None,
    keep_failures: Annotated[bool, typer.Option("--keep-failures", help="Keep episodes that fail, too.")] = False,
    device: Annotated[str, typer.Option(help="Where a trained policy computes: auto, cpu, cuda or mps.")] = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Film a scripted or a trained policy through the cameras that a policy sees by, with all that it did.

    One that was trained from the state shows one that is to learn from pictures how it is done.
    """
    from trainer.demos import recording

    aside = set_aside() if as_json else nullcontext()
    with aside, _progress("episodes") as progress:
        if policy == "scripted":
            training = read_section(config, preset, settings or []).training
            chosen = training.seed if seed is None else seed
            teacher = recording.scripted(training.env, camera or [], size, chosen)
        else:
            from trainer.evaluation.playable import find_playable

            if config or preset or settings:
                raise ConfigError("demos.settings-of-trained")
            found = find_playable(policy, None, device)
            chosen = found.goal_seed if seed is None else seed
            teacher = recording.trained(found, camera or [], size)
        demos = recording.record(teacher, task, episodes, chosen, out, progress, _say, keeps_failures=keep_failures)
    _show(demos, as_json=as_json)


@app.command()
def export(
    demos: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `import` or `record` made.")],
    out: Annotated[Path, typer.Option(help="The new folder of the data set.")],
) -> None:
    """Write demonstrations as a LeRobotDataset v3.0."""
    from trainer.demos.lerobot_export import export_lerobot, left_out
    from trainer.demos.store import Demos

    found = Demos.open(demos)
    with _progress("episodes") as progress:
        export_lerobot(found, out, progress)
    if names := left_out(found.manifest):
        _say(f"left out, for `trainer demos import` would not find it again: {', '.join(names)}")
    print(f"the data set: {out}")


@app.command()
def fit(
    demos: DemosOption,
    out: WeightsOption = None,
    config: ConfigOption = None,
    preset: PresetOption = None,
    settings: SetOption = None,
    run_dir: RunDirOption = None,
    steps: StepsOption = 5_000,
    batch_size: BatchOption = 32,
    learning_rate: RateOption = 1e-4,
    measure_every: EveryOption = 500,
    without_actions: WithoutOption = False,
    as_json: JsonOption = False,
) -> None:
    """Imitate demonstrations with the policy of a training (`algorithm: cloning`), and leave its encoder of pictures.

    Of each task a tenth of the episodes is held out, and the policy that does best on them is kept in --run-dir, a
    training as any: `trainer play`, `evaluate` and `plot` take it, and `export` where it sees the state alone and has
    no trunk. It can be interrupted (exit code 75), and goes on when it is run again; inside a job of the orchestrator
    it hands over as `trainer train` does.
    """
    if without_actions:
        raise ConfigError("demos.without-actions-gone")
    job = Job.from_environment()
    if job is not None:
        job.listen()  # before the slow imports
    asked = read_section(config, preset, settings or []).training
    from trainer.demos import fitting
    from trainer.demos.store import Demos
    from trainer.history.read import read
    from trainer.training.begin import run
    from trainer.training.features.progress import TrainingDisplay

    found = Demos.open(demos)
    training = fitting.cloning_of(
        asked, found, out, steps=steps, every=measure_every, batch_size=batch_size, learning_rate=learning_rate
    )
    if job is None:
        name = out.stem if out is not None else demos.resolve().name
        job = alone((run_dir or Path("runs") / f"fit-{name}").resolve())
        job.listen()
    if code := run(job, training, TrainingDisplay(is_silent=as_json)):
        raise typer.Exit(code)
    about = fitting.write_weights(out, job.slot_dir, found, asked.network.encoder.weights) if out is not None else {}
    rows = [(row["to"], row.get("imitation_loss"), fitting.held_out(row)) for row in read(job.slot_dir)]
    if as_json:
        told = [{"step": step, "loss": loss, "held_out": held_out} for step, loss, held_out in rows]
        facts = {"out": out and str(out), "about": about, "policy": str(job.slot_dir), "rows": told}
        print(json.dumps(facts, indent=2))
        return
    step, _, held_out = min(rows, key=lambda row: row[2])
    print(f"best at step {step:,}: {held_out:.4g} of what is held out")
    if out is not None:
        print(f"the weights: {out} (network.encoder.weights)")
    print(f"the policy: {job.slot_dir} (trainer play, evaluate)")


def alone(folder: Path, **more: Any) -> Job:
    """The job of a run that nobody else keeps. `more`: as of `Job.standalone`. Errors: ConfigError."""
    if (folder / "run.json").exists():
        raise ConfigError("run.kept-by-orchestrator", folder=folder)
    try:
        return Job.standalone(folder, **more)
    except OSError as error:
        raise ConfigError("run.unwritable", folder=folder, why=error.strerror) from None


def _say(sentence: str) -> None:
    say(sentence, file=sys.stderr)


def _show(demos: Demos, *, as_json: bool) -> None:
    told = demos.manifest
    disk = sum(block.bytes for block in told.blocks)
    if as_json:
        facts = {
            "folder": str(demos.folder),
            "digest": told.digest,
            "episodes": len(told.episodes),
            "frames": told.num_frames,
            "frame": list(told.frame),
            "cameras": list(told.cameras),
            "has_actions": told.spaces is not None,
            "licence": told.source.licence,
            "bytes": disk,
            "bytes_a_frame": round(disk / told.num_frames, 1),
        }
        print(json.dumps(facts, indent=2))
        return
    words = (
        f"{demos.folder}: {counted(len(told.episodes), 'episode')}, {counted(told.num_frames, 'frame')} of "
        f"{counted(len(told.cameras), 'camera')}, {told.frame[1]} by {told.frame[2]}, "
        f"{'without' if told.spaces is None else 'with'} actions"
    )
    if told.source.kind != "recorded":
        words += f"; its licence: {told.source.licence}" if told.source.licence else "; no licence is told"
    say(words)


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """On a terminal only."""
    from rich.console import Console

    with Console(stderr=True).status("looking") as status:
        yield lambda done, total: status.update(f"{done:,} of {total:,} {what}")
