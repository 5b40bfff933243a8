from __future__ import annotations

from pathlib import Path

from builders import NOW, a_run, a_slot
from one_run import POLL_S, World

from orchestrator.decisions.edits import AGAIN_S
from orchestrator.decisions.models import SlotStatus
from orchestrator.decisions.requests import BLIND_LONG_S, is_put_off, news_of
from orchestrator.executors.base import SubmitRefused

RUNNING = a_run(a_slot(), a_slot(1, status=SlotStatus.FINISHED))


def test_a_slot_that_is_paused_failed_or_finished_is_told_once() -> None:
    for status in (SlotStatus.PAUSED, SlotStatus.FAILED):
        after = a_run(a_slot(status=status, why="because"), a_slot(1, status=SlotStatus.FINISHED))
        _, told = news_of(RUNNING, after, 2, NOW)
        assert [(kind, facts["slot"], facts["words"]) for kind, facts in told] == [(str(status), 0, "because")]
        assert news_of(after, after, 2, NOW)[1] == []


def test_a_long_blindness_is_told_once_and_so_is_its_end() -> None:
    short = a_run(a_slot(), blind_since=NOW, blind_error="down")
    assert news_of(short, short, 1, NOW + BLIND_LONG_S - 1)[1] == []
    long, told = news_of(short, short, 1, NOW + BLIND_LONG_S)
    assert [kind for kind, _ in told] == ["blind"]
    assert news_of(long, long, 1, NOW + 2 * BLIND_LONG_S)[1] == []
    seen, told = news_of(long, long.model_copy(update={"blind_since": None}), 1, NOW + 3 * BLIND_LONG_S)
    assert [kind for kind, _ in told] == ["sighted"]
    assert news_of(seen, seen, 1, NOW)[1] == []


def put_off_news(world: World) -> int:
    return len([kind for kind, _ in world.told if kind == "put off"])


def test_what_slurm_refuses_each_hour_is_told_the_first_time(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.tick()
    world.job_claims(exit_code=75)
    world.cluster.answers = [SubmitRefused(kind="permanent", words="Invalid account") for _ in range(3)]
    world.tick(after=POLL_S)
    for submissions in (3, 4):
        world.tick(after=AGAIN_S)
        world.tick(after=POLL_S)
        assert (len(world.cluster.submitted), is_put_off(world.slot)) == (submissions, True)
        assert put_off_news(world) == 1
