"""A shared folder that refuses a look for a moment ends no command that people, machines and jobs rely on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import NOW
from daemons import PATIENCE_S
from one_run import World
from refused import refused
from refusing_disk import RefusingDisk
from rich.console import Console

from anchorleg import files
from anchorleg.files import to_json
from orchestrator.hosts import host, stopping
from orchestrator.processes import myself
from orchestrator.run.lease import Owner
from orchestrator.run.rundir import RunDir
from orchestrator.run.starting import StartRequest


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(files, "READ_PAUSE_S", 0.0)
    monkeypatch.setattr(files, "READ_PATIENCE_S", PATIENCE_S)
    world = World(tmp_path, poll_seconds=0.2)
    world.tick()
    return world


def refusing(world: World, kind: str, of: str, left: int = 2, **more: Any) -> RefusingDisk:
    """The world's folder is one that refuses from now on."""
    disk = RefusingDisk(kind, of, left, **more)
    world.run_dir = RunDir(world.run_dir.path, disk)
    return disk


def asked(world: World) -> StartRequest:
    return StartRequest(world.run.config, world.run_dir.path.parent / "c.json", world.run_dir)


@pytest.mark.parametrize(
    ("kind", "of", "granted"),
    [
        ("names", "lease", 0),
        ("read", "ledger-1.json", 0),
        ("read", "run.json", 0),
    ],
)
def test_on_the_machine_after_one_that_is_gone_start_waits_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str, of: str, granted: int
) -> None:
    gone = Owner(epoch=1, process=replace(myself(), host="rented-1", boot_id="its own"), since=NOW, command="start")
    (world.run_dir.lease / "1").write_bytes(to_json(gone.model_dump(mode="json")))
    world.run = world.run.model_copy(update={"config": world.run.config.model_copy(update={"executor": "auto"})})
    monkeypatch.setenv("PATH", "/nowhere")  # no sbatch is there
    waited: list[Owner] = []
    monkeypatch.setattr(host, "wait_for_word", lambda _run_dir, owner: waited.append(owner))
    disk = refusing(world, kind, of, granted=granted)
    host.wait_for_owner_elsewhere(asked(world))
    assert (disk.left, waited) == (0, [gone])
    assert "on rented-1 (orchestrator start" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "of", "granted"),
    [("names", "control", 0), ("names", "lease", 0), ("read", "ledger-0.json", 0)],
)
def test_a_stop_goes_on_waiting_for_the_controller(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, of: str, granted: int
) -> None:
    disk, wish = refusing(world, kind, of, left=0, granted=granted), stopping.wish_to_stop

    def wished(*given: Any, **more: Any) -> Any:
        made = wish(*given, **more)
        disk.left = 3
        return made

    monkeypatch.setattr(stopping, "wish_to_stop", wished)
    monkeypatch.setattr(stopping, "STOP_MARGIN_S", 0.0)
    with refused("stop.not-yet"):
        stopping.stop(world.run_dir, at_once=True, grace_s=None, out=Console())
    assert disk.left == 0
