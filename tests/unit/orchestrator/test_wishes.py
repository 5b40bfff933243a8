"""Which of two commands counts, where a `start` and a `stop` meet. And what a `start` does beside a controller."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from one_run import World
from refused import refused
from rich.console import Console

from orchestrator.decisions.models import Ledger, Slot, SlotStatus
from orchestrator.decisions.requests import TIME_OVER
from orchestrator.hosts import host
from orchestrator.hosts.detached import start_in_background
from orchestrator.hosts.dry import dry_start
from orchestrator.hosts.notice import PREEMPTED
from orchestrator.hosts.stopping import wish_to_stop
from orchestrator.run.ledger import read_control, save_ledger, write_control
from orchestrator.run.starting import StartRequest


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    world = World(tmp_path)
    monkeypatch.setattr(host, "begin", lambda *_given, **_more: world.run)
    return world


def asked(world: World, **more: Any) -> StartRequest:
    return StartRequest(world.run.config, world.run_dir.path.parent / "c.json", world.run_dir, **more)


STOP, STOP_NOW, NOTICE, TIME = ("stop", "stop"), ("stop-now", "stop --now"), ("stop", PREEMPTED), ("stop", TIME_OVER)


@pytest.mark.parametrize("for_s", [None, 3600.0])
@pytest.mark.parametrize(
    ("before", "since", "counts"),
    [
        ([STOP], [], "run"),
        ([STOP], [STOP_NOW], "stop-now"),
        ([], [NOTICE], "run"),  # what nobody typed
        ([], [TIME], "run"),
        ([], [STOP, NOTICE], "stop"),
        ([], [STOP, NOTICE, ("run", "start"), NOTICE], "run"),
    ],
)
def test_a_stop_counts_that_a_person_typed_while_a_start_waited(
    world: World, capsys: pytest.CaptureFixture[str], before: Any, since: Any, counts: str, for_s: float | None
) -> None:
    for wish, by in before:
        write_control(world.run_dir, wish, now=world.time, by=by)
    known = read_control(world.run_dir).number
    for wish, by in since:
        write_control(world.run_dir, wish, now=world.time, by=by)
    host.begin_run(asked(world, for_s=for_s), known)
    assert read_control(world.run_dir).wish == counts
    assert ("was typed after this start and takes precedence." in capsys.readouterr().err) == (counts != "run")


BEGINS = {"run": "under way", "stop": "being stopped", "stop-now": "being stopped"}


def in_background(asked: StartRequest, _out: Console) -> None:
    start_in_background(asked, ["start"])


@pytest.mark.parametrize("start", [host.start, in_background])
def test_a_start_beside_a_controller_that_stops_the_run_is_refused_and_names_the_stop(
    world: World, start: Callable[[StartRequest, Console], None]
) -> None:
    save_ledger(world.run_dir, with_a_failed_slot(world), world.time)
    wish_to_stop(world.run_dir, at_once=True, grace_s=0.0)
    with refused("controller.is-stopping", by="stop --now"):
        start(asked(world), Console())
    assert read_control(world.run_dir).wish == "stop-now"
    assert any(line.startswith("would be refused") for line in dry_start(asked(world)))


def with_a_failed_slot(world: World) -> Ledger:
    slot = Slot(index=0, status=SlotStatus.FAILED, why="its job failed")
    return Ledger(run_id=world.run.run_id, epoch=world.lease.epoch, slots=(slot,))
