"""What `start` was asked for: a config file, or a run that is known by its name, with options and perhaps a fork.

And what every job would end of at once, looked for before the first one: a missing script, a torch without GPUs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anchorleg.words import did_you_mean
from orchestrator.config import RunConfig, apply_overrides, load_config, parse_config
from orchestrator.errors import ConfigError
from orchestrator.notation import format_duration
from orchestrator.run.begin import compute_python, run_dir_of, with_known_experiments
from orchestrator.run.rundir import RunDir, find_run, load_run
from orchestrator.run.sharing import troubles
from trainer.config.section import resolve

#: Of the torch of an interpreter what it is built for. To import it takes seconds; this is one small file of it.
_BUILT_FOR = """\
import importlib.util, os, runpy
torch = importlib.util.find_spec("torch")
if torch is not None:
    built = runpy.run_path(os.path.join(os.path.dirname(torch.origin), "version.py"))
    print("GPUs" if built.get("cuda") or built.get("hip") else "CPUs")
"""
#: A cold interpreter on a network folder.
ASK_PYTHON_S = 20.0
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*|(ba|da|k|z)?sh")


def script_of(command: Sequence[str]) -> str | None:
    """The file that `command` runs: the script of a Python or a shell, or a program that is named by a path.

    A word with a suffix, so that the values of options (`python3 -W ignore train.py`) are none. None where there is no
    such word, or where only the program itself knows which (`python3 -m x`, `torchrun …`).
    """
    program, *words = command
    if not _INTERPRETER.fullmatch(Path(program).name):
        return program if "/" in program else None
    for word in words:
        if re.match(r"-[A-Za-z]*[mcs]$|-$", word):
            return None  # a module, a text, standard input
        if not word.startswith(("-", "+")) and Path(word).suffix:
            return word
    return None


def commands_of(config: RunConfig) -> list[list[str]]:
    """The command lines of all slots, each once; none where the trainer runs."""
    found = [config.command_of(slot) for slot in range(config.slots)] if config.command is not None else []
    return [list(words) for words in dict.fromkeys(tuple(words) for words in found if words is not None)]


def missing_script(config: RunConfig, command: Sequence[str], folder: Path) -> Path | None:
    """Where the script of `command`, one of the config's, should be and is not; None: it is there, or nobody can say.

    `folder`: the config's, in which jobs run. Of a container only what lies in that folder can be seen from here.
    """
    word = script_of(command)
    if word is None or word.startswith("~") or "$" in word:
        return None
    if config.container is not None and Path(word).is_absolute():
        return None
    path = folder / word
    return None if path.exists() else path


def check_script(config: RunConfig, folder: Path) -> None:
    """Every job would end at once. What is named by its whole path may be on the compute nodes only: that is no error.

    Errors: ConfigError with the nearest name that is there.
    """
    for command in commands_of(config):
        path = missing_script(config, command, folder)
        if path is None or Path(script_of(command) or "").is_absolute():
            continue
        try:
            there = [one.name for one in path.parent.iterdir() if one.is_file()]
        except OSError:
            there = []
        hint = did_you_mean(path.name, there, "jobs run in the config file's folder")
        raise ConfigError("command.no-script", script=path.name, folder=path.parent, near=hint)


def has_torch_without_gpus(python: str) -> bool:
    """Whether the torch of this interpreter is built for no GPU. False also where nobody can tell."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # as jobs have it
    try:
        done = subprocess.run(
            [python, "-P", "-c", _BUILT_FOR], env=env, capture_output=True, text=True, timeout=ASK_PYTHON_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.strip() == "CPUs"


def gpus_in_vain(config: RunConfig, python: str) -> str:
    """Why jobs of Slurm could not use the GPUs that they ask for, with what to do; empty where they can, or nobody can
    tell from here: in a container, of another program, or where slurm.setup decides which `python` it is.
    """
    if not config.trains or not config.slurm.gpus or config.container is not None:
        return ""
    if resolve(config.training).device == "cpu" or ("/" not in python and config.slurm.setup):
        return ""
    if not has_torch_without_gpus(python):
        return ""
    found = f"slurm.gpus asks for {config.slurm.gpus}, and the torch of {python} is built without CUDA"
    return f"{found}; install torch with CUDA there (docs/cluster.md), or set slurm.gpus to 0"


#: The field by which slots learn from each other.
GROUP_ROWS = "training.group.rows"


@dataclass(frozen=True)
class StartRequest:
    """`config` is checked. `path`: the config file, whose folder is the program's. `forked_from`: a run id or empty.

    `notes`: what the person should know before it begins, a sentence each. `for_s`: stop after so many seconds; None:
    when the training is done.
    """

    config: RunConfig
    path: Path
    run_dir: RunDir
    forked_from: str = ""
    notes: tuple[str, ...] = ()
    for_s: float | None = None

    def until(self, now: float) -> float | None:
        """When the run is to stop (unix seconds), if it begins at `now`."""
        return None if self.for_s is None else now + self.for_s


def asked_for(
    name: str | None, path: Path, overrides: dict[str, Any], fork: str | None, for_s: float | None = None
) -> StartRequest:
    """By `name` the run's own recorded config counts, else the file at `path`; `overrides` are stronger than either.

    Errors: ConfigError, UnknownRun, RunFolderError.
    """
    if name is not None:
        run_dir = find_run(name)
        run = load_run(run_dir)
        value = run.config.model_dump(mode="json", exclude_unset=True)
        recorded = parse_config(apply_overrides(value, overrides), f"run {name}", overrides)
        asked = StartRequest(recorded, Path(run.config_path), run_dir, for_s=for_s)
    else:
        config = load_config(path, overrides)
        run_dir = run_dir_of(config, path)
        config, notes = (config, ()) if fork is not None else with_known_experiments(config, run_dir)
        asked = StartRequest(config, path, run_dir, notes=notes, for_s=for_s)
    check_script(asked.config, asked.path.parent)
    on_slurm = asked.config.executor != "local" and shutil.which("sbatch") is not None
    if on_slurm and (words := gpus_in_vain(asked.config, compute_python(asked.config, asked.path))):
        raise ConfigError("gpus.in-vain", why=words)
    asked = replace(asked, notes=(*asked.notes, *troubles(asked.run_dir)))
    return asked if fork is None else _forked(asked, fork)


def as_group(asked: StartRequest, overrides: dict[str, Any]) -> dict[str, Any]:
    """`overrides` as --ddp-world-size means them: several slots that learn from each other, unless the config says."""
    config = asked.config
    is_said = "rows" in config.training.written.get("group", {})
    return overrides if config.slots == 1 or not config.trains or is_said else {**overrides, GROUP_ROWS: True}


def with_world_size(asked: StartRequest) -> StartRequest:
    """`asked` with a word on what --ddp-world-size, which older guides have, means here."""
    config, count = asked.config, asked.config.slots
    has_seeds = config.trains and config.experiments is None
    seeds = " (slot k with seed + k)" if has_seeds else ""
    many = "1 slot" if count == 1 else f"{count} slots, that is {count} jobs at once"
    if count > 1 and config.trains and resolve(config.training).group.ways:
        how = f"; each trains{seeds}, and learns from what the others did too (training.group)"
    else:
        how = f"; each trains on its own{seeds}" if count > 1 else ""
    return replace(asked, notes=(*asked.notes, f"--ddp-world-size {count}: {many}{how}."))


def _forked(asked: StartRequest, fork: str) -> StartRequest:
    """The same under a new name, in a folder beside the original's."""
    run_dir = RunDir(asked.run_dir.path.parent / fork)
    if run_dir.run_file.exists():
        raise ConfigError("fork.is-there", fork=fork, path=run_dir.path)
    value = asked.config.model_dump(mode="json", exclude_unset=True)
    config = parse_config(value | {"run_name": fork, "run_dir": str(run_dir.path)}, str(asked.path))
    origin = load_run(asked.run_dir).run_id if asked.run_dir.run_file.exists() else ""
    return StartRequest(config, asked.path, run_dir, origin, for_s=asked.for_s)


def command_line(
    name: str | None, path: Path, overrides: dict[str, Any], fork: str | None, for_s: float | None = None
) -> list[str]:
    """The words of an `orchestrator start` that asks for the same."""
    what = [name] if name is not None else ["--config", str(path)]
    sets = [word for dotted, value in overrides.items() for word in ("--set", f"{dotted}={json.dumps(value)}")]
    bound = ["--for", format_duration(for_s)] if for_s is not None else []
    return ["start", *what, *sets, *(["--fork", fork] if fork else []), *bound]
