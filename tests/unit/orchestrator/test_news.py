from __future__ import annotations

import pytest
from builders import NOW, a_run, a_slot

from orchestrator.decisions.models import SlotStatus
from orchestrator.decisions.news import BLIND_LONG_S, news_of

RUNNING = a_run(a_slot(), a_slot(1, status=SlotStatus.FINISHED))


def test_a_slot_that_is_paused_failed_or_finished_is_told_once() -> None:
    for status in (SlotStatus.PAUSED, SlotStatus.FAILED):
        after = a_run(a_slot(status=status, why="because"), a_slot(1, status=SlotStatus.FINISHED))
        _, told = news_of(RUNNING, after, 2, NOW)
        assert [(kind, facts["slot"], facts["words"]) for kind, facts in told] == [(str(status), 0, "because")]
        assert news_of(after, after, 2, NOW)[1] == []


def test_the_last_slot_finishes_the_run() -> None:
    after = a_run(a_slot(status=SlotStatus.FINISHED), a_slot(1, status=SlotStatus.FINISHED))
    assert [kind for kind, _ in news_of(RUNNING, after, 2, NOW)[1]] == ["finished", "run finished"]


@pytest.mark.parametrize("other", [SlotStatus.BEHIND, SlotStatus.DROPPED])
def test_a_run_is_finished_where_the_others_are_not_to_go_on(other: SlotStatus) -> None:
    after = a_run(a_slot(status=other), a_slot(1, status=SlotStatus.FINISHED))
    [(kind, facts)] = news_of(RUNNING, after, 2, NOW)[1]
    assert (kind, facts["words"]) == ("run finished", "1 slot is finished, and none of the 2 is left to go on")
    assert news_of(after, after, 2, NOW)[1] == []
    nobody = a_run(a_slot(status=other), a_slot(1, status=other))
    assert news_of(a_run(a_slot(), a_slot(1, status=other)), nobody, 2, NOW)[1] == []


def test_a_long_blindness_is_told_once_and_so_is_its_end() -> None:
    short = a_run(a_slot(), blind_since=NOW, blind_error="down")
    assert news_of(short, short, 1, NOW + BLIND_LONG_S - 1)[1] == []
    long, told = news_of(short, short, 1, NOW + BLIND_LONG_S)
    assert [kind for kind, _ in told] == ["blind"]
    assert news_of(long, long, 1, NOW + 2 * BLIND_LONG_S)[1] == []
    seen, told = news_of(long, long.model_copy(update={"blind_since": None}), 1, NOW + 3 * BLIND_LONG_S)
    assert [kind for kind, _ in told] == ["sighted"]
    assert news_of(seen, seen, 1, NOW)[1] == []


def test_a_short_blindness_has_no_end_to_tell() -> None:
    short = a_run(a_slot(), blind_since=NOW)
    assert news_of(short, short.model_copy(update={"blind_since": None}), 1, NOW + 5)[1] == []
