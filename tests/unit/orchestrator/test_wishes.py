"""Which of two commands counts, where a `start` and a `stop` meet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from one_run import World
from rich.console import Console

from orchestrator.errors import LeaseHeld
from orchestrator.hosts import host, stopping
from orchestrator.hosts.leaving import PREEMPTED
from orchestrator.hosts.stopping import wish_to_stop
from orchestrator.run.ledger import TIME_OVER, read_control, write_control
from orchestrator.run.starting import StartRequest


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    world = World(tmp_path)
    monkeypatch.setattr(host, "begin", lambda *_given, **_more: world.run)
    return world


def asked(world: World, **more: Any) -> StartRequest:
    return StartRequest(world.run.config, world.run_dir.path.parent / "c.json", world.run_dir, **more)


@pytest.mark.parametrize("for_s", [None, 3600.0])
def test_a_stop_that_was_typed_while_a_start_waited_counts(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], for_s: float | None
) -> None:
    wish_to_stop(world.run_dir, at_once=False, grace_s=60.0)  # before: what `start` takes away
    known = read_control(world.run_dir).number

    def begun(*_given: Any, **_more: Any) -> Any:
        wish_to_stop(world.run_dir, at_once=True, grace_s=0.0)
        return world.run

    monkeypatch.setattr(host, "begin", begun)
    host.begin_run(asked(world, for_s=for_s), known)
    assert read_control(world.run_dir).wish == "stop-now"
    assert "note: `orchestrator stop --now` was typed after this start, and counts." in capsys.readouterr().err


@pytest.mark.parametrize("by", [PREEMPTED, TIME_OVER])
def test_an_end_that_nobody_typed_does_not(world: World, by: str) -> None:
    known = read_control(world.run_dir).number
    write_control(world.run_dir, "stop", now=world.time, by=by)
    host.begin_run(asked(world), known)
    assert read_control(world.run_dir).wish == "run"


def test_a_stop_that_was_typed_before_a_start_does_not(world: World) -> None:
    wish_to_stop(world.run_dir, at_once=False, grace_s=60.0)
    host.begin_run(asked(world), read_control(world.run_dir).number)
    assert read_control(world.run_dir).wish == "run"


def test_a_stop_says_that_a_start_was_typed_after_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def overruled(*given: Any, **more: Any) -> Any:
        wish = wish_to_stop(*given, **more)
        write_control(world.run_dir, "run", now=world.time, by="start")
        return wish

    monkeypatch.setattr(stopping, "wish_to_stop", overruled)
    monkeypatch.setattr(stopping, "STOP_MARGIN_S", 0.0)  # it does not wait for what nobody does any more
    with pytest.raises(LeaseHeld, match="`orchestrator start toy` was typed after this stop, and counts"):
        stopping.stop(world.run_dir, at_once=True, grace_s=None, out=Console())
