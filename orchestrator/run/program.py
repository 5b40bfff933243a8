"""What every job would end of at once, looked for before the first one: a missing script, a torch without GPUs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from anchorleg.words import did_you_mean
from orchestrator.config import RunConfig
from orchestrator.errors import ConfigError
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
_PYTHON = re.compile(r"(python|pypy)[\d.]*")
_SHELL = re.compile(r"(ba|da|k|z)?sh")
#: Options whose value is a word of its own: of python(1), and of a shell (`bash -euo pipefail run.sh`).
_PYTHONS_WITH_VALUE = re.compile(r"-[A-Za-z]*[WX]|--check-hash-based-pycs")
_SHELLS_WITH_VALUE = re.compile(r"[-+][A-Za-z]*[oO]|--rcfile|--init-file")


def script_of(command: Sequence[str]) -> str | None:
    """The file that `command` runs: the script of a Python or a shell, or a program that is named by a path.

    None where there is none, or where only the program itself knows which (`python3 -m x`, `torchrun …`).
    """
    program, *words = command
    name = Path(program).name
    if not _PYTHON.fullmatch(name) and not _SHELL.fullmatch(name):
        return program if "/" in program else None
    with_value = _PYTHONS_WITH_VALUE if _PYTHON.fullmatch(name) else _SHELLS_WITH_VALUE
    rest = iter(words)
    for word in rest:
        if with_value.fullmatch(word):
            next(rest, None)
        elif re.match(r"-[A-Za-z]*[mcs]", word) or word == "-":
            return None  # a module, a text, standard input
        elif not word.startswith(("-", "+")):
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
