"""What `start` was asked for: a config file, or a run that is known by its name, with options and perhaps a fork. And
what every job would end of at once, looked for before the first one: a missing script, a torch without GPUs.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anchorleg.words import did_you_mean
from orchestrator.config import RunConfig, apply_overrides, load_config, parse_config
from orchestrator.errors import ConfigError
from orchestrator.executors.base import Frozen
from orchestrator.executors.slurm import NoAnswer, run_command
from orchestrator.notation import format_duration
from orchestrator.run import snapshot
from orchestrator.run.begin import compute_python, run_dir_of, with_known_experiments
from orchestrator.run.rundir import RunDir, find_run, load_run
from orchestrator.run.sharing import troubles
from trainer.config.section import resolve

#: Prints an interpreter's version, what its torch is built for (to import it takes seconds), and whether it can load
#: the shim that each job begins with.
_ASKED = """\
import importlib.util, os, runpy, sys
print(".".join(map(str, sys.version_info[:3])))
try:
    torch = importlib.util.find_spec("torch")
    built = runpy.run_path(os.path.join(os.path.dirname(torch.origin), "version.py")) if torch else {}
    print("GPU" if built.get("cuda") or built.get("hip") else "CPU" if torch else "none")
except Exception:
    print("unknown")
sys.path.insert(0, sys.argv[1])
import orchestrator.shim
print("shim")
"""
#: A cold interpreter on a network folder.
ASK_PYTHON_S = 20.0
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*|(ba|da|k|z)?sh")


def script_of(command: Sequence[str]) -> str | None:
    """The file that `command` runs: the script of a Python or a shell (a word with a suffix: values of options are
    none), or a program that is named by a path. None where only the program knows (`python3 -m x`, `torchrun …`).
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
    """Where the script of `command`, one of the config's, should be and is not; None: it is there, or nobody can say:
    of a container only what lies in `folder`, the config's, can be seen from here.
    """
    word = script_of(command)
    if word is None or word.startswith("~") or "$" in word:
        return None
    if config.container is not None and Path(word).is_absolute():
        return None
    path = folder / word
    return None if path.exists() else path


def check_script(config: RunConfig, folder: Path) -> None:
    """What is named by its whole path may be on the compute nodes only. Errors: ConfigError with the nearest name."""
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


class PythonFacts(Frozen):
    """The compute side's interpreter, as this machine sees it. `version` empty: it could not be run, see `words`.
    `torch`: what its torch is built for, "GPU" or "CPU"; "none": it has no torch.
    """

    command: str
    version: str = ""
    torch: str = "unknown"
    shim_ok: bool = False
    words: str = ""


def python_facts(python: str, env: Mapping[str, str]) -> PythonFacts:
    """Ask the interpreter, without PYTHONPATH: jobs do not have it."""
    code = str(Path(__file__).resolve().parents[2])
    # Not -P, which Python 3.10 refuses: then it could not say how old it is.
    env = {**env, "PYTHONPATH": "", "PYTHONSAFEPATH": "1"}
    answer = run_command([python, "-c", _ASKED, code], env, ASK_PYTHON_S)
    if isinstance(answer, NoAnswer):
        return PythonFacts(command=python, words=answer.why)
    version, torch, *rest = [*answer.stdout.split(), "", ""]
    last = next((line for line in reversed(answer.stderr.splitlines()) if line.strip()), "")
    return PythonFacts(command=python, version=version, torch=torch, shim_ok="shim" in rest, words=last)


def unusable_python(config: RunConfig, python: PythonFacts, executor: str) -> ConfigError | None:
    """Why each job would end at once with this interpreter, and what to do; None where jobs can work, or nobody can
    tell from here: in a container, of another program, or where slurm.setup decides which `python` it is.
    """
    is_chosen_there = "/" not in python.command and config.slurm.setup
    if config.command is not None or config.container is not None or is_chosen_there:
        return None
    if python.torch == "none" and config.python is None:  # one that is named may have it on the compute nodes alone
        return ConfigError("python.no-torch", python=python.command)
    if python.torch != "CPU" or executor != "slurm" or not config.trains or not config.slurm.gpus:
        return None
    return ConfigError("python.no-cuda", python=python.command) if resolve(config.training).device != "cpu" else None


@dataclass(frozen=True)
class StartRequest:
    """`config` is checked. `path`: the config file, whose folder is the program's. `forked_from`: a run id or empty.
    `notes`: sentences for the person before it begins. `for_s`: stop after so many seconds; None: when the training is
    done. `renew_code`: copy the user's program anew.
    """

    config: RunConfig
    path: Path
    run_dir: RunDir
    forked_from: str = ""
    notes: tuple[str, ...] = ()
    for_s: float | None = None
    renew_code: bool = False

    def until(self, now: float) -> float | None:
        """When the run is to stop (unix seconds), if it begins at `now`."""
        return None if self.for_s is None else now + self.for_s


@dataclass(frozen=True)
class Typed:
    """What was typed; fields as in `StartRequest`. `name`: of a run, not the file at `path`; `fork`: of a new run."""

    name: str | None
    path: Path
    overrides: dict[str, Any]
    fork: str | None = None
    for_s: float | None = None
    renew_code: bool = False

    @property
    def words(self) -> list[str]:
        """A command line that asks for the same."""
        what = [self.name] if self.name is not None else ["--config", str(self.path)]
        for dotted, value in self.overrides.items():
            what += ["--set", f"{dotted}={json.dumps(value)}"]
        what += ["--fork", self.fork] if self.fork else []
        what += ["--for", format_duration(self.for_s)] if self.for_s is not None else []
        return ["start", *what, *(["--renew-code"] if self.renew_code else [])]


def asked_for(typed: Typed) -> StartRequest:
    """By `name` the run's own recorded config counts, else the file at `path`; `overrides` are stronger than either.
    Errors: ConfigError, UnknownRun, RunFolderError.
    """
    name, path, overrides = typed.name, typed.path, typed.overrides
    if name is not None:
        run_dir = find_run(name)
        run = load_run(run_dir)
        value = run.config.model_dump(mode="json", exclude_unset=True)
        recorded = parse_config(apply_overrides(value, overrides), f"run {name}", overrides)
        asked = StartRequest(recorded, Path(run.config_path), run_dir)
    else:
        config = load_config(path, overrides)
        run_dir = run_dir_of(config, path)
        config, notes = (config, ()) if typed.fork is not None else with_known_experiments(config, run_dir)
        asked = StartRequest(config, path, run_dir, notes=notes)
    check_script(asked.config, asked.path.parent)
    if asked.config.command is None:
        executor = "local" if asked.config.executor == "local" or shutil.which("sbatch") is None else "slurm"
        python = python_facts(compute_python(asked.config, asked.path), os.environ)
        if error := unusable_python(asked.config, python, executor):
            raise error
    asked = asked if typed.fork is None else _forked(asked, typed.fork)
    scripts = filter(None, map(script_of, commands_of(asked.config)))
    copied = snapshot.notes(asked.config, asked.path.parent, asked.run_dir, scripts, renew=typed.renew_code)
    notes = (*asked.notes, *troubles(asked.run_dir), *copied)
    return replace(asked, notes=notes, for_s=typed.for_s, renew_code=typed.renew_code)


def as_group(asked: StartRequest, overrides: dict[str, Any]) -> dict[str, Any]:
    """`overrides` as --ddp-world-size means them: slots learn from each other, unless the config says."""
    config = asked.config
    is_said = "rows" in config.training.written.get("group", {})
    return (
        overrides if config.slots == 1 or not config.trains or is_said else {**overrides, "training.group.rows": True}
    )


def with_world_size(asked: StartRequest) -> StartRequest:
    """`asked` with a word on what --ddp-world-size, which older guides have, means here."""
    config, count = asked.config, asked.config.slots
    has_seeds = config.trains and config.experiments is None
    seeds = " (slot k with seed + k)" if has_seeds else ""
    many = "1 slot" if count == 1 else f"{count} slots, so {count} jobs at once"
    if count > 1 and config.trains and resolve(config.training).group.ways:
        how = f"; each trains{seeds} and also learns from the others (training.group)"
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
    return StartRequest(config, asked.path, run_dir, origin)
