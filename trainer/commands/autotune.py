"""`trainer autotune` and `presets`: settings that suit a machine, and those that have a name."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorleg.files import write_bytes
from anchorleg.output import Waiting, say, set_aside
from anchorleg.words import counted, duration
from trainer.commands import ConfigOption, JsonOption, PresetOption, SetOption
from trainer.errors import ConfigError, SaveError

if TYPE_CHECKING:
    from trainer.machine.host import Host
    from trainer.tuning.autotune import MachineRates
    from trainer.tuning.training import Setting, Tried

#: What a person waits for once: a dozen choices of actors need a second each, of a training three to ten.
AUTOTUNE_S = 60.0
TRAINING_S = 100.0
_GB = 2**30

SaveOption = Annotated[bool, typer.Option("--save", help="Write the recommended settings into --config.")]
UserIdOption = Annotated[str | None, typer.Option(help="Name of the stored measurement. Default: this machine's.")]
BudgetOption = Annotated[
    float | None, typer.Option(min=5, max=600, help="Longest time. Default: 60 for actors, 100 for a training.")
]
AgainOption = Annotated[bool, typer.Option("--again", help="Measure again for actors, even if stored.")]


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
    """Find the fastest settings for this machine.

    With --config or --preset, measures that training with all that this job or machine may use; run it where the
    training will run, such as in a Slurm job. Otherwise measures for `trainer actors --num-envs auto`, which uses the
    stored result and leaves you a core and 4 GB.
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
        return
    rows = [[str(one.num_envs), str(one.workers), f"{one.steps_per_s:,.0f}"] for one in facts.stepping]
    chosen = [(one.num_envs, one.workers) == (best.num_envs, best.workers) for one in facts.stepping]
    _table(["environments", "num_workers", "steps/s"], rows, chosen)
    print(_computer(host))
    print(f"recommended: {counted(best.num_envs, 'environment')}, num_workers {best.workers}")
    if (rate := facts.rate_of(best)) is not None:
        print(f"  about {rate:,.0f} steps/s, without the policy; leaves one core and 4 GB free")
    for note in best.notes:
        say(f"  {note}")
    if known:
        print("from an earlier measurement; to measure again, use --again")
    print("next: trainer actors --shared-dir ~/shared_weights --num-envs auto --contribute")


def presets(as_json: JsonOption = False) -> None:
    """List the presets, with results and times."""
    from rich.console import Console
    from rich.table import Table

    from trainer.config.section import presets as known

    facts, rows = {}, list[list[str]]()
    for name, (about, it) in known().items():
        kind, tasks = it.algorithm.name, it.env.tasks
        facts[name] = {"algorithm": kind, "environment": it.env.name, "tasks": tasks, **about}
        rows.append([name, f"{kind}, {f'MT{len(tasks)}' if tasks[1:] else tasks[0]}", about["result"], about["about"]])
    if as_json:
        print(json.dumps(facts, indent=2))
    elif sys.stdout.isatty():
        shown = Table("preset", "algorithm, task", "success in time", "purpose", box=None, padding=(0, 2, 0, 0))
        for row in rows:
            shown.add_row(*row)
        Console(emoji=False, highlight=False).print(shown)
    else:
        print("\n".join(map("\t".join, rows)))


def measured(host: Host, user_id: str | None, *, budget_s: float, again: bool) -> tuple[MachineRates, bool]:
    """The facts of this machine: as they were kept (True), or measured and kept now (False; told on standard error).

    For `trainer actors --autotune` too. Errors: ConfigError, SaveError.
    """
    from trainer.tuning.autotune import cache_file, is_of, measure_machine, read_facts, write_facts

    path = cache_file(user_id or host.name)
    facts = read_facts(path)
    if facts is not None and is_of(facts, host) and not again:
        return facts, True
    _announce(budget_s)
    with Waiting("measuring"):
        facts = measure_machine(budget_s, _say)
    write_facts(path, facts)
    return facts, False


def _say(line: str) -> None:
    say(line, file=sys.stderr)


def _announce(budget_s: float) -> None:
    _say(f"measuring for at most {budget_s:.0f} s (longer if the simulator must be compiled first)")


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
        _say("this is not a Slurm job: it measures this machine, not the one that the training will use")
    _announce(budget_s)
    from trainer.machine import device as machine
    from trainer.training.memory import shortage
    from trainer.tuning.autotune import cache_file
    from trainer.tuning.training import advise, try_settings

    try:
        with set_aside() if as_json else contextlib.nullcontext(), Waiting("measuring"):
            tried = try_settings(asked.training, budget_s, _say, cache_file("goals").parent)
    except (MemoryError, RuntimeError) as error:
        short = shortage(error, asked.training, machine.choose_device(asked.training.device).type)
        if short is None:
            raise
        raise short from error
    best = advise(tried.own, tried.rates)
    values = {"num_envs": best.num_envs, "num_workers": best.workers}
    if tried.device == "cuda" and best.cuda_graph != asked.training.cuda_graph:
        values["cuda_graph"] = best.cuda_graph
    if as_json:
        rates = [{**asdict(setting), "steps_per_s": rate} for setting, rate in tried.rates.items()]
        gain = tried.rates[best] / tried.rates[tried.own]
        print(json.dumps({"set": values, "gain": gain, "host": asdict(tried.host), "measured": rates}, indent=2))
    else:
        _show(asked.training.total_steps, tried, best)
    is_same = best == tried.own
    if save and config is not None and not is_same:
        save_settings(config, values)
        _say(f"written to {config}: {json.dumps(values)}")
    elif not as_json and not is_same:
        how = "--save writes it into the file" if config else "put it into the training section"
        say(f'next: "training": {json.dumps(values)}; {how}')


def _show(total_steps: int, tried: Tried, best: Setting) -> None:
    order = sorted(tried.rates, key=lambda one: (one.num_envs, one.workers, one.cuda_graph))
    is_gpu = tried.device == "cuda"
    rows = []
    for one in order:
        mark = "recommended" if one == best else ("as it is now" if one == tried.own else "")
        graph = [str(one.cuda_graph).lower()] * is_gpu
        rows.append([str(one.num_envs), str(one.workers), *graph, f"{tried.rates[one]:,.1f}", mark])
    names = ["num_envs", "num_workers", *["cuda_graph"] * is_gpu, "steps/s", ""]
    _table(names, rows, [setting == best for setting in order])
    print(_computer(tried.host) + (f", {tried.device}" if tried.device != "cpu" else ""))
    rate = tried.rates[best]
    much = "unchanged: your settings are the best"
    if best != tried.own:
        much = f"{rate / tried.rates[tried.own]:.2f} times as fast as now"
    elif len(tried.rates) == 1:
        much = "unchanged: nothing else was measured in that time; allow more with --budget"
    print(
        f"recommended: num_envs {best.num_envs}, num_workers {best.workers} ({much}): about {rate:,.0f} steps/s, "
        f"{total_steps:,} steps in {duration(total_steps / rate)} without evaluations"
    )


def _table(names: list[str], rows: list[list[str]], best: list[bool]) -> None:
    from rich.console import Console

    from trainer.showing.tables import print_table

    print_table(Console(emoji=False, highlight=False), names, rows, best=best)


def _computer(host: Host) -> str:
    memory = "memory unknown" if host.memory_bytes is None else f"{host.memory_bytes / _GB:.1f} GB"
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
