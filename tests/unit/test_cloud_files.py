"""The ready files for machines that are rented: only fields that the other programs document, only commands of ours."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer
from daemons import PATIENCE_S

from orchestrator.cli import app
from orchestrator.config import RunConfig, apply_overrides, check_start, load_config
from orchestrator.notation import typed_fields
from trainer.config.read import read_document

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "cloud"
#: dstack 0.22 (dstackai/dstack 511c318): core/models/configurations.py and profiles.py, and volumes.py.
DSTACK_TASK = {
    "type", "name", "image", "user", "privileged", "entrypoint", "working_dir", "registry_auth", "python", "nvcc",
    "single_branch", "env", "shell", "resources", "priority", "volumes", "docker", "repos", "files", "ports",
    "commands", "nodes", "backends", "regions", "availability_zones", "instance_types", "reservation", "spot_policy",
    "retry", "max_duration", "stop_duration", "max_price", "creation_policy", "idle_duration", "utilization_policy",
    "startup_order", "stop_criteria", "schedule", "fleets", "instances", "tags",
}  # fmt: skip
DSTACK_VOLUME = {
    "type", "name", "backend", "region", "availability_zone", "size", "volume_id", "auto_cleanup_duration", "tags",
}  # fmt: skip
DSTACK_EVENTS = {"no-capacity", "interruption", "error"}
#: SkyPilot: docs/source/reference/yaml-spec.rst, examples/managed-jobs.rst (01b85de), reference/volumes.rst.
SKY_TASK = {
    "name", "workdir", "num_nodes", "resources", "envs", "secrets", "file_mounts", "volumes", "setup", "run", "config",
}  # fmt: skip
SKY_RESOURCES = {
    "infra", "accelerators", "accelerator_args", "cpus", "memory", "instance_type", "use_spot", "disk_size",
    "disk_tier", "network_tier", "image_id", "ports", "labels", "autostop", "any_of", "ordered", "job_recovery",
}  # fmt: skip
SKY_RECOVERY = {"strategy", "max_restarts_on_errors", "recover_on_exit_codes"}
SKY_VOLUME = {"name", "type", "infra", "size", "config", "labels"}


def read(name: str) -> dict[str, Any]:
    return read_document(FOLDER / name)


def commands_in(name: str) -> list[list[str]]:
    """Every call of orchestrator in a file, as words."""
    text = (FOLDER / name).read_text(encoding="utf-8").replace("\\\n", " ")
    calls = re.findall(r"(?<![\w/.-])(?:/opt/anchorleg/bin/)?orchestrator (start|stop)([^;\n|]*)", text)
    return [[verb, *shlex.split(rest)] for verb, rest in calls]


def with_calls() -> list[tuple[str, list[str]]]:
    names = [path.name for path in sorted(FOLDER.iterdir())]
    return [(name, words) for name in names for words in commands_in(name)]


@pytest.mark.parametrize(("name", "words"), with_calls(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_call_is_one_that_the_program_takes(name: str, words: list[str]) -> None:
    verb, *rest = words
    command = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
    known = {option for parameter in command.params for option in parameter.opts}
    options = dict(zip(rest[::2], rest[1::2], strict=True))
    assert set(options) <= known
    config = ROOT / "examples" / Path(options["--config"]).name
    sets = [value for option, value in zip(rest[::2], rest[1::2], strict=True) if option == "--set"]
    fields = typed_fields(sets)
    asked = RunConfig.model_validate(apply_overrides(read_document(config), fields))
    assert asked.executor == "local"
    check_start(asked, "local")
    assert load_config(config).relay.preemption_notice == "none"


def test_dstack_knows_the_fields_of_its_files_and_tries_again_what_ends_with_75() -> None:
    task, volume = read("task.dstack.yml"), read("volume.dstack.yml")
    assert task.keys() <= DSTACK_TASK
    assert volume.keys() <= DSTACK_VOLUME
    assert (task["type"], volume["type"]) == ("task", "volume")
    assert task["volumes"] == [{"name": volume["name"], "path": "/runs"}]
    assert set(task["retry"]["on_events"]) == DSTACK_EVENTS
    assert isinstance(task["python"], str)  # 3.10 would be 3.1


@pytest.mark.parametrize(("ended_with", "says"), [(0, 0), (75, 75), (2, 0), (10, 0), (137, 0)])
def test_of_dstacks_task_only_75_is_an_error(tmp_path: Path, ended_with: int, says: int) -> None:
    program = tmp_path / "orchestrator"
    program.write_text(f"#!/bin/sh\nexit {ended_with}\n")
    program.chmod(0o755)
    script = read("task.dstack.yml")["commands"][-1]
    done = subprocess.run(
        ["sh", "-ec", script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == says
    assert ("mend that" in done.stdout) == (ended_with not in {0, 75})


def test_skypilot_knows_the_fields_of_its_files_and_recovers_from_75() -> None:
    task, volume = read("task.skypilot.yaml"), read("volume.skypilot.yaml")
    assert task.keys() <= SKY_TASK
    assert volume.keys() <= SKY_VOLUME
    assert task["resources"].keys() <= SKY_RESOURCES
    assert task["resources"]["job_recovery"].keys() <= SKY_RECOVERY
    assert task["resources"]["job_recovery"]["recover_on_exit_codes"] == [75]
    assert task["volumes"] == {"/runs": volume["name"]}
