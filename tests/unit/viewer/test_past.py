"""A run as it was at an earlier moment: by what is known now, without what came later."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import NOW
from watched_runs import JOB_S, START_S, WAIT_S, a_watched_run

from viewer.model import RunPage, ViewChoice
from viewer.pacing import NO_END, Pacer
from viewer.sources.runs import LACKS, RunFolders

#: Slot 0's last job but one began then.
BEGUN = NOW - 2 * (JOB_S + WAIT_S) + 0.6 * JOB_S


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> RunFolders:
    folder: Path = tmp_path_factory.mktemp("past")
    run_dir = a_watched_run(folder / "mt10", NOW)
    return RunFolders([run_dir.path], "mt10", pacer=Pacer(look_s=NO_END))


def at(source: RunFolders, moment: float | None) -> RunPage:
    run = source.look(ViewChoice(at=moment), NOW).run
    assert run is not None
    return run


@pytest.mark.parametrize(
    ("moment", "parts"),
    [
        (BEGUN - WAIT_S / 2, ["queue"]),
        (BEGUN + START_S / 2, ["queue", "start-up"]),
        (BEGUN + JOB_S / 2, ["queue", "start-up", "running"]),
        (BEGUN + JOB_S - 10, ["queue", "start-up", "running", "saving"]),
    ],
)
def test_a_slot_at_each_stage_of_a_job(source: RunFolders, moment: float, parts: list[str]) -> None:
    bars = at(source, moment).times["0"].jobs
    assert len(bars) == 5
    assert [span.part for span in bars[-1].parts if span.part != "waiting"] == parts
    assert bars[-1].parts[-1].end is None, "it went on"
    assert bars[-1].verdict == ""
    assert max(span.start for bar in bars for span in bar.parts) <= moment


def test_nothing_that_came_later_is_in_it(source: RunFolders) -> None:
    early, late, now = (at(source, moment) for moment in (BEGUN + 60, BEGUN + JOB_S + 60, None))
    assert early.as_of == BEGUN + 60
    assert max(one.at for one in early.history.moments) <= BEGUN + 60
    steps = [page.curves.lines[-1].steps[-1] for page in (early, late, now)]
    assert steps == sorted(steps)
    assert len(set(steps)) > 1
    assert early.evaluations[0].count < now.evaluations[0].count
    assert (early.lacks, early.troubles, early.cards, now.lacks) == ((LACKS,), (), {}, ())
    assert now.as_of is None


def test_before_the_beginning_and_after_now_there_is_nothing_to_see(source: RunFolders) -> None:
    first = at(source, 0.0)
    assert first.as_of == first.begun_at
    assert len(first.history.moments) == 1
    last, now = at(source, NOW + 1e9), at(source, None)
    assert last.as_of == NOW
    assert [bar.attempt for bar in last.times["0"].jobs] == [bar.attempt for bar in now.times["0"].jobs]
