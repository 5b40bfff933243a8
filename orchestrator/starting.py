"""What `start` was asked for: a config file, or a run that is known by its name, with options and perhaps a fork."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.begin import run_dir_of
from orchestrator.config import RunConfig, apply_overrides, load_config, parse_config
from orchestrator.errors import ConfigError
from orchestrator.registry import find
from orchestrator.rundir import RunDir, load_run


@dataclass(frozen=True)
class Asked:
    """`config` is checked. `path`: the config file, whose folder is the program's. `forked_from`: a run id or empty."""

    config: RunConfig
    path: Path
    run_dir: RunDir
    forked_from: str = ""


def asked_for(name: str | None, path: Path, overrides: dict[str, Any], fork: str | None) -> Asked:
    """By `name` the run's own recorded config counts, else the file at `path`; `overrides` are stronger than either.

    Errors: ConfigError, UnknownRun, RunFolderError.
    """
    if name is not None:
        run_dir = find(name)
        run = load_run(run_dir)
        value = run.config.model_dump(mode="json", exclude_unset=True)
        asked = Asked(parse_config(apply_overrides(value, overrides), f"run {name}"), Path(run.config_path), run_dir)
    else:
        config = load_config(path, overrides)
        asked = Asked(config, path, run_dir_of(config, path))
    return asked if fork is None else _forked(asked, fork)


def _forked(asked: Asked, fork: str) -> Asked:
    """The same under a new name, in a folder beside the original's."""
    run_dir = RunDir(asked.run_dir.path.parent / fork)
    if run_dir.run_file.exists():
        raise ConfigError(f"--fork {fork}: {run_dir.path} already holds a run; choose another name.")
    value = asked.config.model_dump(mode="json", exclude_unset=True)
    config = parse_config(value | {"run_name": fork, "run_dir": str(run_dir.path)}, str(asked.path))
    origin = load_run(asked.run_dir).run_id if asked.run_dir.run_file.exists() else ""
    return Asked(config, asked.path, run_dir, origin)


def command_line(name: str | None, path: Path, overrides: dict[str, Any], fork: str | None) -> list[str]:
    """The words of an `orchestrator start` that asks for the same."""
    what = [name] if name is not None else ["--config", str(path)]
    sets = [word for dotted, value in overrides.items() for word in ("--set", f"{dotted}={json.dumps(value)}")]
    return ["start", *what, *sets, *(["--fork", fork] if fork else [])]
