"""`trainer autotune`: what this machine can give, to actors or to a training."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anchorleg.output import set_aside
from anchorleg.words import counted, duration, roughly
from trainer.errors import ConfigError

if TYPE_CHECKING:
    from trainer.config.training import Training
    from trainer.machine.host import Host
    from trainer.tuning.autotune import MachineRates, Recommendation
    from trainer.tuning.training import Advice, Setting, Trial
    from trainer.tuning.trials import Tried


import stat
from collections.abc import Mapping
from typing import Any

from anchorleg.files import write_bytes
from trainer.errors import SaveError

#: What a person waits for once: a dozen choices of actors need a second each, of a training three to ten.
AUTOTUNE_S = 60.0
TRAINING_S = 100.0
_GB = 2**30

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Tune this training: a training section, or a cluster_config.json."),
]
PresetOption = Annotated[str | None, typer.Option(help="Tune this preset's training; stronger than the file's.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="Any field of the training, as in `trainer train`.")]
SaveOption = Annotated[bool, typer.Option("--save", help="Write what is recommended into --config.")]
UserIdOption = Annotated[
    str | None, typer.Option(help="Name to keep the actors' measurement under; left out: this machine's name.")
]
BudgetOption = Annotated[
    float | None,
    typer.Option(min=5, max=600, help="Seconds that measuring may take; left out: 60 for actors, else 100."),
]
AgainOption = Annotated[bool, typer.Option("--again", help="Measure for actors anew, although it was done before.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def autotune(
    config: ConfigOption = None,
    preset: PresetOption = None,
    settings: SetOption = None,
    save: SaveOption = False,
    user_id: UserIdOption = None,
    budget: BudgetOption = None,
    again: AgainOption = False,
    as_json: JsonOption = False,
) -> None:
    """Measure what this machine can give, and recommend settings.

    Without --config or --preset: for `trainer actors --num-envs auto`, which finds the result again; a core and 4 GB
    stay yours. With one: for that training, which is to have all that this job or machine may use. Run it where the
    training is to run, such as in a Slurm job.
    """
    if config is not None or preset is not None or settings:
        if user_id is not None or again:
            raise ConfigError("cli.autotune-of-actors")
        _training(config, preset, settings or [], budget or TRAINING_S, save=save, as_json=as_json)
        return
    if save:
        raise ConfigError("cli.save-without-config")
    from trainer.machine.host import read_host
    from trainer.tuning.autotune import cache_file, recommend

    host = read_host()
    with set_aside() if as_json else contextlib.nullcontext():
        facts, known = measured(host, user_id, budget_s=budget or AUTOTUNE_S, again=again)
    best = recommend(replace(facts, host=host))
    if as_json:
        file = str(cache_file(user_id or host.name))
        value = {"recommendation": asdict(best), "measured": asdict(facts), "file": file, "from_cache": known}
        print(json.dumps(value, indent=2))
    else:
        _show(facts, best, time.time(), known=known)


def measured(host: Host, user_id: str | None, *, budget_s: float, again: bool) -> tuple[MachineRates, bool]:
    """The facts of this machine: as they were kept (True), or measured and kept now (False; told on standard error).

    For `trainer actors --autotune` too. Errors: ConfigError, SaveError.
    """
    from trainer.tuning.autotune import cache_file, is_of, read_facts, why_not, write_facts

    path = cache_file(user_id or host.name)
    facts = read_facts(path)
    if facts is not None and is_of(facts, host) and not again:
        return facts, True
    from trainer.tuning import benchmark

    if (why := why_not(path, facts, host)) and not again:
        _say(why)
    _announce(budget_s)
    facts = benchmark.measure_machine(budget_s, _say)
    write_facts(path, facts)
    return facts, False


def _say(line: str) -> None:
    _tell(line, is_error=True)


def _tell(line: str, *, is_error: bool = False) -> None:
    """A line that a terminal breaks between words, a further one indented as far; a pipe gets it as it is."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    out = Console(stderr=is_error, emoji=False, highlight=False)
    if out.is_terminal:
        indent = len(line) - len(line.lstrip())
        out.print(Padding(Text(line.strip()), (0, 0, 0, indent), expand=False))
    else:
        print(line, file=sys.stderr if is_error else sys.stdout, flush=True)


def _announce(budget_s: float) -> None:
    from trainer.tuning.autotune import is_busy

    if is_busy():
        _say("other programs keep this machine busy: the numbers will be low; measure anew when it is idle")
    _say(f"measuring for at most {budget_s:.0f} s (longer once, where the simulator is compiled first)")


def _training(
    config: Path | None, preset: str | None, settings: list[str], budget_s: float, *, save: bool, as_json: bool
) -> None:
    from trainer.config.read import YAML_SUFFIXES, read_section

    asked = read_section(config, preset, settings)
    if save and config is None:
        raise ConfigError("cli.save-without-config")
    if save and (preset is not None or settings):
        raise ConfigError("cli.save-of-other-settings")
    if save and config is not None and config.suffix.lower() in YAML_SUFFIXES:
        raise ConfigError("cli.save-loses-comments", config=config)
    if shutil.which("sbatch") and "SLURM_JOB_ID" not in os.environ:
        _say("this is no Slurm job: what is measured is this machine, not the one that the training will run on")
    _announce(budget_s)
    from trainer.machine import device as machine
    from trainer.training.memory import shortage
    from trainer.tuning.autotune import cache_file
    from trainer.tuning.training import advise
    from trainer.tuning.trials import try_settings

    try:
        with set_aside() if as_json else contextlib.nullcontext():
            tried = try_settings(asked.training, budget_s, _say, cache_file("goals").parent)
    except (MemoryError, RuntimeError) as error:
        short = shortage(error, asked.training, machine.choose_device(asked.training.device).type)
        if short is None:
            raise
        raise short from error
    best = advise(tried.own, tried.trials, tried.memory)
    values = {"num_envs": best.setting.num_envs, "num_workers": best.setting.workers}
    if tried.device == "cuda" and best.setting.cuda_graph != asked.training.cuda_graph:
        values["cuda_graph"] = best.setting.cuda_graph
    if as_json:
        print(json.dumps({"set": values, "advice": asdict(best), "measured": asdict(tried)}, indent=2))
    else:
        _show_training(asked.training, tried, best)
    is_same = best.setting == tried.own
    if save and config is not None and not is_same:
        save_settings(config, values)
        _say(f"written to {config}: {json.dumps(values)}")
    elif not as_json and not is_same:
        how = "--save writes it into the file" if config else "put it into the training section"
        print(f'next: "training": {json.dumps(values)}; {how}')


def compared(own: Setting, trials: Sequence[Trial], best: Advice) -> str:
    """What is recommended, beside what there is now."""
    if best.setting != own:
        return f"{best.gain:.2f} times as fast as now"
    if all(trial.setting == own for trial in trials):
        return "as it is: nothing else was measured in that time; --budget gives it more"
    return "as it is: nothing to change"


def _show_training(training: Training, tried: Tried, best: Advice) -> None:
    from trainer.tuning.training import of_ranks

    order = sorted(
        tried.trials, key=lambda trial: (trial.setting.threads, trial.setting.num_envs, trial.setting.workers)
    )
    rows = []
    for trial in order:
        setting = trial.setting
        mark = "recommended" if setting == best.setting else ("as it is now" if setting == tried.own else "")
        of_gpu = ["yes" if setting.cuda_graph else "no"] if tried.device == "cuda" else []
        numbers = map(str, (setting.num_envs, setting.workers, setting.threads))
        rows.append([*numbers, *of_gpu, f"{trial.steps_per_s:,.1f}", mark])
    names = ["num_envs", "num_workers", "threads", *(["cuda_graph"] if tried.device == "cuda" else []), "steps/s", ""]
    _table(names, rows, best=[row[-1] == "recommended" for row in rows])
    _tell(_computer(tried.host) + (f", {tried.device}" if tried.device != "cpu" else ""))
    learned = 1 / (tried.update_s * tried.updates_per_step) if tried.updates_per_step else 0.0
    by = {"native": "in C, num_workers are threads", "python": "in Python, num_workers are processes"}
    _tell(
        f"  learning alone: {1e3 * tried.update_s:.1f} ms an update, {learned:,.0f} steps/s"
        + (f" (products by {tried.products})" if tried.products else "")
    )
    _tell(
        f"  stepping alone: {tried.collected_per_s:,.0f} steps/s "
        f"({by.get(tried.stepping, 'some tasks in C; num_workers are processes')})"
    )
    memory = tried.memory
    there = "" if memory.limit is None else f" of {memory.limit / _GB:.1f} GB"
    replay = f" ({memory.replay / _GB:.1f} GB of it the replay's {memory.replay // memory.row:,} rows)"
    _tell(f"  memory: {memory.need / _GB:.1f} GB{there} in the end{replay if memory.replay else ''}")
    if tried.gpu_bytes is not None:
        used, there_is = tried.gpu_bytes
        rows_of = f"with updates of {training.learned_at_once:,} rows"
        _tell(f"  GPU memory: {used / _GB:.1f} GB of {there_is / _GB:.1f} GB {rows_of}")
    shares = training.algorithm.SHARES
    _tell(f"  {of_ranks(tried.update_s, tried.gradient_bytes, tried.batch_bytes, shares=shares)}")
    whole = duration(training.total_steps / best.steps_per_s)
    much = compared(tried.own, tried.trials, best)
    _tell(
        f"recommended: num_envs {best.setting.num_envs}, num_workers {best.setting.workers} ({much}): "
        f"about {best.steps_per_s:,.0f} steps/s, {training.total_steps:,} steps in {whole} without evaluations"
    )
    for note in best.notes:
        _tell(f"  {note}")


def _table(names: list[str], rows: list[list[str]], *, best: list[bool]) -> None:
    from rich.console import Console

    from trainer.showing.tables import print_table

    print_table(Console(emoji=False, highlight=False), names, rows, is_numbers=True, best=best)


def _show(facts: MachineRates, best: Recommendation, now: float, *, known: bool) -> None:
    rows = [[str(one.num_envs), str(one.workers), one.stepper, f"{one.steps_per_s:,.0f}"] for one in facts.stepping]
    chosen = [(one.num_envs, one.workers) == (best.num_envs, best.workers) for one in facts.stepping]
    is_native = all(one.stepper == "native" for one in facts.stepping)
    _table(["environments", "threads" if is_native else "workers", "stepped by", "steps/s"], rows, best=chosen)
    _tell(f"{_computer(facts.host)}, {facts.accelerator_name or 'no GPU that torch can use'}")
    _tell(f"recommended: {_choice(best, 'thread' if is_native else 'worker')}")
    if best.steps_per_s is not None:
        _tell(f"  about {best.steps_per_s:,.0f} steps/s, policy included; a core and 4 GB stay yours")
    for note in best.notes:
        _tell(f"  {note}")
    if known:
        _tell(f"measured {roughly(now - facts.measured_at)} ago; --again measures anew")
    _tell("next: trainer actors --shared-dir ~/shared_weights --num-envs auto --contribute")


def _choice(best: Recommendation, kind: str) -> str:
    envs = counted(best.num_envs, "environment")
    where = f"on {counted(best.workers, kind)}" if best.workers else "in the program itself"
    return f"{envs} {where}; policy on {best.device}, {counted(best.threads, 'thread')}"


def _computer(host: Host) -> str:
    memory = "memory unknown"
    if host.memory_bytes is not None:
        free = "" if host.free_bytes is None else f" ({host.free_bytes / _GB:.1f} GB were free)"
        memory = f"{host.memory_bytes / _GB:.1f} GB{free}"
    return f"{host.name}: {counted(host.cores, 'core')}, {memory}"


def save_settings(config: Path, values: Mapping[str, int]) -> None:
    """Set `values` in the training section of `config`, a file that `trainer.config.read.read_section` has accepted.

    The rest keeps its values and its order, the file its mode; it is written anew, indented by two. Errors: SaveError.
    """
    path = config.resolve()
    try:
        whole: dict[str, Any] = json.loads(path.read_bytes())
        section = whole
        if "training" in whole or "run_name" in whole:
            whole["training"] = section = whole.get("training") or {}
        section.update(values)
        text = json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
        write_bytes(path, text.encode(), mode=stat.S_IMODE(path.stat().st_mode))
    except OSError as error:
        raise SaveError("autotune.not-saved", config=config, why=error.strerror) from None
