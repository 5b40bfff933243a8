"""`trainer demos`: demonstrations, and what is learned from them."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorleg.cli import add_commands, new_app
from anchorleg.job import Job
from anchorleg.output import Waiting, say, set_aside
from anchorleg.words import counted
from trainer.commands import DEVICES, ConfigOption, JsonOption, PresetOption, SetOption
from trainer.errors import ConfigError

if TYPE_CHECKING:
    from trainer.demos.store import Demos

app = new_app("Import, record, export and imitate demonstrations.")

OutOption = Annotated[Path, typer.Option(metavar="DIR", help="New folder. Repeat the command to continue.")]
SizeOption = Annotated[int, typer.Option(min=16, max=1024, help="Side of a picture: env.image_size.")]
CameraOption = Annotated[list[str] | None, typer.Option(help="Only this camera. Repeat for more. Default: all.")]
TaskOption = Annotated[str | None, typer.Option(help="Only this task, as the data set names it.")]
DemosOption = Annotated[Path, typer.Option(help="Folder that `import` or `record` made.")]
WeightsOption = Annotated[
    Path | None, typer.Option(help="Write the encoder too, as NAME.safetensors for network.encoder.weights.")
]
RunDirOption = Annotated[Path | None, typer.Option(help="Run folder. Default: runs/fit-<name of --out or --demos>.")]
StepsOption = Annotated[int, typer.Option(min=1, help="Number of updates, each of one batch.")]
BatchOption = Annotated[int, typer.Option(min=2, max=65_536, help="Actions per batch.")]
RateOption = Annotated[float, typer.Option(min=1e-9, max=1.0, help="Learning rate of Adam.")]
EveryOption = Annotated[int, typer.Option(min=1, help="Updates between measurements.")]


def import_(
    source: Annotated[Path, typer.Argument(help="A LeRobotDataset v3.0.")],
    out: OutOption,
    size: SizeOption = 64,
    camera: CameraOption = None,
    task: TaskOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import a LeRobotDataset v3.0.

    Decodes its films once into frames of one size. If killed, repeat the command to continue.
    """
    with Waiting("reading the data set") as line:
        from trainer.demos.lerobot import import_lerobot

        demos = import_lerobot(source, out, size, camera or [], partial(line.count, what="episodes"), task)
    _show(demos, as_json=as_json)


def record(
    out: OutOption,
    policy: Annotated[str, typer.Option(help="scripted, or a policy as for `trainer play`.")] = "scripted",
    config: ConfigOption = None,
    preset: PresetOption = None,
    settings: SetOption = None,
    task: Annotated[str | None, typer.Option(help="Only this task.")] = None,
    episodes: Annotated[int, typer.Option(min=1, max=100_000, help="Episodes per task, each from another start.")] = 50,
    camera: Annotated[list[str] | None, typer.Option(help="Repeat for more. Default: env.cameras.")] = None,
    size: Annotated[
        int | None, typer.Option(min=16, max=1024, help="Side of a picture. Default: env.image_size.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, max=2**32 - 1, help="Of goals and starts. Default: training's.")
    ] = None,
    keep_failures: Annotated[bool, typer.Option("--keep-failures", help="Also keep episodes that fail.")] = False,
    device: Annotated[str, typer.Option(metavar=DEVICES, help="Where a trained policy computes.")] = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Record a scripted or trained policy.

    Stores what the cameras see and what the policy does, so that a policy trained from states can teach one that sees
    pictures.
    """
    aside = set_aside() if as_json else nullcontext()
    with aside, Waiting("loading the policy") as line:
        from trainer.config.read import read_section
        from trainer.demos import recording

        progress = partial(line.count, what="episodes")
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


def export(
    demos: Annotated[Path, typer.Argument(help="Folder that `import` or `record` made.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="New folder of the data set.")],
) -> None:
    """Write demonstrations as a LeRobotDataset v3.0."""
    with Waiting("reading the demonstrations") as line:
        from trainer.demos.lerobot_export import export_lerobot, left_out
        from trainer.demos.store import Demos

        found = Demos.open(demos)
        export_lerobot(found, out, partial(line.count, what="episodes"))
    if names := left_out(found.manifest):
        _say(f"left out, because `trainer demos import` cannot read it: {', '.join(names)}")
    print(f"the data set: {out}")


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
    as_json: JsonOption = False,
) -> None:
    """Imitate demonstrations by behaviour cloning.

    A tenth of each task's episodes is held out, and the policy that does best on them is kept in --run-dir, for
    `trainer play`, `evaluate`, `plot` and, if it sees only states and has no trunk, `export`. Repeat the command to
    continue after an interruption (exit code 75). In a job of the orchestrator, it hands over as `trainer train` does.
    """
    job = Job.from_environment()
    if job is not None:
        job.listen()  # before the slow imports
    from trainer.config.read import read_section

    asked = read_section(config, preset, settings or []).training
    with Waiting("reading the demonstrations"):
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
    with Waiting("starting") as line:
        code = run(job, training, TrainingDisplay(line, is_silent=as_json))
    if code:
        raise typer.Exit(code)
    about = fitting.write_weights(out, job.slot_dir, found, asked.network.encoder.weights) if out is not None else {}
    rows = [(row["to"], row.get("imitation_loss"), fitting.held_out(row)) for row in read(job.slot_dir)]
    if as_json:
        told = [{"step": step, "loss": loss, "held_out": held_out} for step, loss, held_out in rows]
        facts = {"out": out and str(out), "about": about, "policy": str(job.slot_dir), "rows": told}
        print(json.dumps(facts, indent=2))
        return
    step, _, held_out = min(rows, key=lambda row: row[2])
    print(f"best at step {step:,}: error {held_out:.4g} on held-out episodes")
    if out is not None:
        print(f"the weights: {out} (network.encoder.weights)")
    print(f"the policy: {job.slot_dir} (trainer play, evaluate)")


add_commands(app, "Commands", import_, record, export, fit)


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
        words += f"; its licence: {told.source.licence}" if told.source.licence else "; licence unknown"
    say(words)
