"""What `start` was asked for: a config file, or a run that is known by its name, with options and perhaps a fork."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.config import RunConfig, apply_overrides, load_config, parse_config
from orchestrator.errors import ConfigError
from orchestrator.run.begin import compute_python, run_dir_of, with_known_experiments
from orchestrator.run.program import check_script, gpus_in_vain
from orchestrator.run.registry import find_run
from orchestrator.run.rundir import RunDir, load_run
from orchestrator.run.sharing import troubles
from orchestrator.walltime import format_duration
from trainer.config.section import resolve

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
        notes = () if fork is not None else _left_in_the_file(recorded, Path(run.config_path), run_dir)
        asked = StartRequest(recorded, Path(run.config_path), run_dir, notes=notes, for_s=for_s)
    else:
        config = load_config(path, overrides)
        run_dir = run_dir_of(config, path)
        config, notes = (config, ()) if fork is not None else with_known_experiments(config, run_dir)
        asked = StartRequest(config, path, run_dir, notes=notes, for_s=for_s)
    check_script(asked.config, asked.path.parent)
    on_slurm = asked.config.executor != "local" and shutil.which("sbatch") is not None
    if on_slurm and (words := gpus_in_vain(asked.config, compute_python(asked.config, asked.path))):
        raise ConfigError("gpus.in-vain", why=words)
    asked = replace(asked, notes=(*asked.notes, *troubles(asked.config, asked.path.parent, asked.run_dir)))
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


def _left_in_the_file(recorded: RunConfig, path: Path, run_dir: RunDir) -> tuple[str, ...]:
    """What the run's config file says otherwise than the run's record: an edit is expected to count."""
    try:
        file = load_config(path, {})
    except ConfigError:
        return ()  # it is gone or broken, and the run does not need it
    if run_dir_of(file, path).path != run_dir.path or file.run_name != recorded.run_name:
        return ()  # it is another run's by now
    changed = sorted(_differences(recorded.model_dump(mode="json"), file.model_dump(mode="json")))
    if not changed:
        return ()
    note = (
        f"{path} says otherwise than this run's own config: {', '.join(changed)}. The run goes on with its own; "
        f"`orchestrator start --config {path}` takes the file's."
    )
    return (note,)


def _differences(a: dict[str, Any], b: dict[str, Any], prefix: str = "") -> list[str]:
    """The dotted fields in which two configs of the same fields differ."""
    found: list[str] = []
    for name in a.keys() | b.keys():
        one, other = a.get(name), b.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            found += _differences(one, other, f"{prefix}{name}.")
        elif one != other:
            found.append(f"{prefix}{name}")
    return found


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
