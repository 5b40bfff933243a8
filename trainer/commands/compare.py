"""`trainer compare`: algorithms on equal terms, as a table, a picture and JSON."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from anchorleg.errors import SEVERAL
from anchorleg.output import set_aside
from anchorleg.words import did_you_mean
from trainer.commands.options import ConfigOption, JsonOption, PresetOption, SetOption
from trainer.config.find import ALGORITHMS, checked, find
from trainer.config.find import names as known
from trainer.config.read import LoadedSection, read_section
from trainer.config.section import PRESETS, by_task
from trainer.config.training import Training
from trainer.errors import ConfigError, FieldError

RunsArgument = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[RUN]…", help="Runs that were trained already, slots grouped by their settings; none: train."
    ),
]
AlgorithmsOption = Annotated[
    str,
    typer.Option(
        help="Names with commas between them: of algorithms, with their defaults, or of presets: arm-ppo,arm-a2c."
    ),
]
StepsOption = Annotated[int, typer.Option(min=1, help="Steps of each training, whatever --config says.")]
SeedsOption = Annotated[int, typer.Option(min=1, help="Trainings of each algorithm; three or more speak of seeds.")]
RunDirOption = Annotated[Path, typer.Option(help="Where to train; the same command again goes on there.")]
JobsOption = Annotated[int, typer.Option(min=1, help="Trainings at once; more than one makes their times unequal.")]
OutOption = Annotated[Path | None, typer.Option(help="The picture, .png or .svg; default: compare.png.")]


#: Options that say how to train.
_OF_TRAINING = ("algorithms", "steps", "seeds", "config", "preset", "settings", "run_dir", "jobs")
#: What options of their own say of each training, and which.
_SAID = {"total_steps": "--steps", "algorithm": "--algorithms", "algorithm.name": "--algorithms"}
#: So many evaluations make a curve, where nobody says how many there are.
_EVALUATIONS = 10


def compare(
    context: typer.Context,
    runs: RunsArgument = None,
    algorithms: AlgorithmsOption = "ppo,a2c,sac",
    steps: StepsOption = 50_000,
    seeds: SeedsOption = 3,
    config: ConfigOption = None,
    preset: PresetOption = None,
    settings: SetOption = None,
    run_dir: RunDirOption = Path("runs/compare"),
    jobs: JobsOption = 1,
    out: OutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train algorithms with equal steps, seeds and evaluations, and say which did better, how surely and how fast.

    On a cluster train them as experiments of one run, and give that run here.
    """
    from rich.console import Console

    from trainer.showing.comparison import contenders_at, must_share_environment, rising
    from trainer.showing.tables import comparison_as_json, not_apart, show_comparison

    console = Console(emoji=False, highlight=False, markup=False)
    with set_aside() if as_json else contextlib.nullcontext():
        if runs:
            unused = [name for name in _OF_TRAINING if is_given(context, name)]
            if unused:
                options = ", ".join("--set" if name == "settings" else f"--{name.replace('_', '-')}" for name in unused)
                raise ConfigError("compare.options-of-runs", options=options)
        else:
            from trainer.envs.suite import spaces_of
            from trainer.tuning.contest import entries, train_all

            chosen = chosen_of(algorithms.split(","), steps, config, preset, settings or [])
            must_share_environment(list(chosen.items()))
            for name, one in chosen.items():
                for field, why in one.warnings_of():
                    print(f"warning: {name}: {field}: {why}", file=sys.stderr)
            for name, one in chosen.items():
                try:
                    find(ALGORITHMS, one.algorithm.name).sizes(one, spaces_of(one))  # what cannot be trained says so
                except ValueError as error:
                    raise ConfigError("compare.not-here", name=name, why=error) from error
            found = entries(chosen, seeds, run_dir)
            train_all(found, jobs, Console(stderr=True) if as_json else console)
            runs = [entry.folder for entry in found]
        contenders = rising(contenders_at(runs))
    for words in not_apart(contenders):
        print(f"warning: {words}", file=sys.stderr)
    if as_json:
        print(json.dumps(comparison_as_json(contenders)))
    else:
        show_comparison(contenders, console)
    if out is not None or not as_json:
        from trainer.showing.plot import draw_comparison

        picture = out or Path("compare.png")
        draw_comparison(contenders, picture, ", ".join(one.name for one in contenders))
        if not as_json:
            print(f"the picture: {picture}")


def is_given(context: typer.Context, name: str) -> bool:
    """Whether the command line says this option, and not its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def chosen_of(
    algorithms: list[str], steps: int, config: Path | None, preset: str | None, settings: list[str]
) -> dict[str, Training]:
    """What each of them is trained with, by its name. Errors: ConfigError."""
    names = [name.strip() for name in algorithms if name.strip()]
    if not names or len(set(names)) < len(names):
        raise ConfigError("compare.algorithms-once")
    for setting in settings:
        field = setting.partition("=")[0].removeprefix("training.")
        if field in _SAID:
            raise ConfigError("compare.set-of-option", setting=setting, option=_SAID[field])
    settings = [*settings, f"total_steps={steps}"]
    return {name: _with_a_curve(_asked_of(name, settings, config, preset)) for name in names}


def _asked_of(name: str, settings: list[str], config: Path | None, preset: str | None) -> LoadedSection:
    """What the contender `name` is asked to be. Errors: ConfigError."""
    if name in PRESETS:
        if preset is not None:
            raise ConfigError("compare.two-presets", name=name)
        return _read(name, config, name, settings)
    try:
        checked(ALGORITHMS, name)
    except FieldError:
        hint = did_you_mean(name, [*known(ALGORITHMS), *PRESETS])
        raise ConfigError("compare.unknown-algorithm", name=name, hint=hint) from None
    return _read(name, config, preset, [f"algorithm={name}", *settings])


def _read(name: str, config: Path | None, preset: str | None, settings: list[str]) -> LoadedSection:
    """As `read_section`; what all have in common may not fit to each. Errors: ConfigError, which names whom."""
    try:
        return read_section(config, preset, settings)
    except ConfigError as error:
        errors = error.fields["errors"] if error.id == SEVERAL else (error,)
        raise ConfigError.all_of([ConfigError.at(name, "", each) for each in errors]) from None


def _with_a_curve(asked: LoadedSection) -> Training:
    """What is asked for; with a checkpoint and an evaluation each tenth of it, where neither a user nor a preset says
    how often.
    """
    training, preset = asked.training, asked.section.preset
    said = {*asked.section.written, *PRESETS[preset], *by_task(preset, 1)}
    most = max(1, training.total_steps // _EVALUATIONS)
    often = {
        name: min(getattr(training, name), most)
        for name in ("evaluation_interval", "checkpoint_interval")
        if name not in said
    }
    return training.changed(**often)
