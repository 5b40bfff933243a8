"""A run that is started by its name goes on with its own config, and says where its file differs from that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import NOW

from orchestrator.commands.options import parse_overrides
from orchestrator.config import load_config
from orchestrator.run.begin import begin, prepare_folder, run_dir_of
from orchestrator.run.rundir import register
from orchestrator.run.starting import StartRequest, Typed, as_group, asked_for, with_world_size
from trainer.config.section import resolve

CONFIG = {"run_name": "toy", "executor": "local", "command": ["true"], "slurm": {"partition": "gpuu"}}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The config file of a run that was begun, and is known by its name."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "toy.json"
    path.write_text(json.dumps(CONFIG))
    config = load_config(path, {})
    run_dir = run_dir_of(config, path)
    prepare_folder(run_dir)
    register(begin(config, path, run_dir, {}, NOW), run_dir, NOW)
    return path


def notes(file: Path, **overrides: Any) -> tuple[str, ...]:
    asked = asked_for(Typed("toy", file, overrides))
    assert asked.config.slurm.partition == overrides.get("slurm.partition", "gpuu")
    return asked.notes


def by_world_size(file: Path, count: int, **config: Any) -> StartRequest:
    file.write_text(json.dumps({"run_name": "mt10", "executor": "local", **config}))
    overrides = parse_overrides([f"slots={count}"], slots=count, world_size=count)
    overrides = as_group(asked_for(Typed(None, file, overrides)), overrides)
    return with_world_size(asked_for(Typed(None, file, overrides)))


def test_the_world_size_of_older_guides_is_a_group_of_so_many_slots_and_says_so(file: Path) -> None:
    asked = by_world_size(file, 4)
    assert asked.config.slots == 4
    assert resolve(asked.config.training_of(3)).group.rows
    (note,) = asked.notes
    assert note.startswith("--ddp-world-size 4: 4 slots, so 4 jobs at once; each trains (slot k with seed + k)")
    assert "training.group.rows=true" in " ".join(Typed(None, file, {"training.group.rows": True}).words)
