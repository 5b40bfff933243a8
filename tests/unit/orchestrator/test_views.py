"""What people see: columns that fit the terminal, notes in words, lines for a pipe only when something changed."""

from __future__ import annotations

import io
from typing import Any

import pytest
from builders import NOW
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.decisions.models import Verdict
from orchestrator.hosts.stopping import after_stop
from orchestrator.screens.cells import done_in, ranges, short, span
from orchestrator.screens.forecast import Forecast
from orchestrator.screens.status import ExcludedNode, RunView, SlotView, SuccessorView
from orchestrator.screens.timeline import clock, end_words
from orchestrator.screens.views import about, note_lines, plain_lines, run_table
from orchestrator.screens.watch import changes, marks


def a_view(*slots: SlotView, **more: Any) -> RunView:
    known = {
        "run_id": "toy-0123abcd",
        "run_name": "toy",
        "run_dir": "/runs/toy",
        "executor": "slurm",
        "state": "running",
        "controller": "process 7 on login1",
        "controller_epoch": 3,
        "wish": "run",
        "written_at": NOW - 3,
    }
    return RunView.model_validate({**known, **more, "slots": slots})


def test_a_stop_names_few_slots_and_counts_many() -> None:
    few = a_view(
        running(0), running(1, checkpoint_step=5), running(2, state="finished"), running(3, checkpoint_step=None)
    )
    many = a_view(*[running(k, checkpoint_step=1000 + k) for k in range(40)])
    assert after_stop(few) == (
        "toy is stopped: saved slot 0 at step 1,200,000, slot 1 at step 5; finished before: 1 of 4 slots. "
        "Go on with `orchestrator start toy`."
    )
    assert after_stop(many) == (
        "toy is stopped: saved 40 slots, at steps 1,000 to 1,039. Go on with `orchestrator start toy`."
    )
    assert after_stop(a_view(running(checkpoint_step=None))) == "toy is stopped. Go on with `orchestrator start toy`."


def running(slot: int = 0, **more: Any) -> SlotView:
    known = {
        "slot": slot,
        "state": "running",
        "job_id": "1234567",
        "step": 1_234_567,
        "total": 20_000_000,
        "checkpoint_step": 1_200_000,
        "rate": 1234.5,
        "ends_at": NOW + 12_345,
        "forecast": Forecast(finish_in_s=123_456, more_jobs=9, waits_included=False),
        "progress": {"gpu_percent": 87.4, "success": 0.43},
        "jobs": 12,
    }
    return SlotView.model_validate(known | more)


def drawn(view: RunView, width: int) -> list[str]:
    out = Console(file=io.StringIO(), width=width, force_terminal=False)
    out.print(run_table(view, NOW, width))
    assert isinstance(out.file, io.StringIO)
    return [line.rstrip() for line in out.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_cell_is_cut_at_any_width(width: int) -> None:
    lines = drawn(a_view(running(), running(1, state="handing over")), width)
    assert all(len(line) <= width for line in lines)
    assert not any("…" in line for line in lines)
    assert any("1,234,567/20,000,000" in line or "1.23M/20M" in line for line in lines)


def test_80_columns_hold_what_matters_and_120_all_of_it() -> None:
    narrow, wide = drawn(a_view(running()), 80), drawn(a_view(running()), 120)
    for name in ("job", "state", "step", "steps/s", "GPU", "job ends in", "done in"):
        assert any(name in line for line in narrow), narrow
    for name in ("steps/s", "done in", "GPU", "success", "jobs"):
        assert any(name in line for line in wide), wide
    assert any(">1 d 10 h" in line for line in wide)


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (9_999, "9,999"), (10_000, "10k"), (999_999, "999k"), (1_234_567, "1.23M"), (1_200_000, "1.2M"),
     (19_999_999, "19.9M"), (20_000_000, "20M"), (1_005_000, "1M"), (1_050_000, "1.05M"), (2_000_000_000, "2G")],
)  # fmt: skip
def test_short_numbers_are_cut_off_and_never_rounded_up(value: int, words: str) -> None:
    assert short(value) == words


def test_a_column_that_nobody_fills_is_left_out() -> None:
    lines = drawn(a_view(running(progress={}, forecast=None)), 120)
    assert not any("GPU" in line or "done in" in line for line in lines)


def test_slots_that_wait_for_the_same_share_a_line() -> None:
    waiting = [SlotView(slot=k, state="pending", why="waits for its turn") for k in (0, 1, 2, 5)]
    assert note_lines(a_view(*waiting), NOW) == ["slots 0-2, 5: waits for its turn"]


@given(st.lists(st.integers(0, 50), unique=True, min_size=1).map(sorted))
def test_ranges_name_exactly_the_slots(numbers: list[int]) -> None:
    named = []
    for part in ranges(numbers).split(", "):
        first, _, last = part.partition("-")
        named += range(int(first), int(last or first) + 1)
    assert named == numbers


def test_notes_tell_the_start_that_slurm_expects_and_what_is_queued_behind() -> None:
    pending = SlotView(slot=0, state="pending", why="is next", expected_start_at=NOW + 720)
    successor = SuccessorView(attempt=3, job_id="124", state="pending")
    view = a_view(pending, running(1, successor=successor))
    assert note_lines(view, NOW) == [
        f"slot 0: is next; Slurm expects to start it at {clock(NOW + 720, NOW)} (in 0:12:00)"
    ]
    assert any("next job" in line for line in drawn(view, 120))
    assert ", next job 124" in plain_lines(view, NOW)[-1]
    held = successor.model_copy(update={"why": "is held by you"})
    assert note_lines(a_view(running(successor=held)), NOW) == ["slot 0: the next job, 124, is held by you"]


def test_a_failed_slot_says_what_to_do_and_a_bad_last_job_how_it_ended() -> None:
    failed = SlotView(slot=0, state="failed", why="wrong task", next="mend it, then `orchestrator start toy`")
    crashed = running(1, last_verdict=Verdict.CRASHED, last_cause="out of memory")
    assert note_lines(a_view(failed, crashed), NOW) == [
        "slot 0: wrong task; mend it, then `orchestrator start toy`",
        "slot 1: last job: crashed (out of memory)",
    ]


def test_what_concerns_the_whole_run_stands_on_top() -> None:
    view = a_view(
        blind_since=NOW - 300,
        blind_error="squeue timed out",
        excluded_nodes=(ExcludedNode(node="gpu[07]", until=NOW + 3600, deaths=2),),
    )
    assert [line for line, _ in about(view, NOW)] == [
        "controller: process 7 on login1, last look 3 s ago",
        f"blind since {clock(NOW - 300, NOW)} (0:05:00 ago): squeue timed out; nothing is submitted meanwhile",
        f"avoids node gpu[07] until {clock(NOW + 3600, NOW)}: 2 jobs died early on it",
    ]
    assert any("gpu[07]" in line for line in drawn(view, 120))  # brackets are no markup


def test_a_run_that_is_bounded_says_when_it_ends_and_no_longer_once_it_has() -> None:
    bounded = a_view(until=NOW + 90)
    assert [line for line, _ in about(bounded, NOW)][1] == (
        f"until {clock(NOW + 90, NOW)} (in 0:01:30): then every job saves and ends"
    )
    assert len(about(a_view(until=NOW + 90, state="finished"), NOW)) == 1


def test_nobody_who_looks_is_said_with_the_way_out() -> None:
    view = a_view(running(), controller=None, state="no controller", failover_tick=True)
    (line, urgent), (failover, _) = about(view, NOW)
    assert urgent
    assert "orchestrator start toy" in line
    assert "looks after the run itself" in failover
    over = running(why="its job has ended since, and nobody has looked")
    assert len(about(view.model_copy(update={"slots": (over,)}), NOW)) == 1


def test_a_forecast_that_leaves_waits_out_is_a_lower_bound() -> None:
    known = running(forecast=Forecast(finish_in_s=60, more_jobs=1, waits_included=True))
    assert done_in(known) == "0:01:00"
    assert done_in(running()) == ">1 d 10 h"


def test_a_pipe_gets_one_line_a_slot_without_colours() -> None:
    lines = plain_lines(a_view(running(), running(1)), NOW)
    assert len(lines) == 4
    assert lines[2].startswith("slot 0, running, job 1234567, step 1,234,567/20,000,000, saved at 1,200,000, 1,234 ")
    assert "\x1b" not in "".join(lines)


class TestWatchInAPipe:
    def test_says_all_at_first(self) -> None:
        view = a_view(running(), running(1))
        assert len(changes(view, {}, marks(view), NOW)) == 4

    def test_is_silent_while_numbers_only_count_on(self) -> None:
        later = running(step=1_300_000, rate=99.0, ends_at=NOW + 1)
        assert marks(a_view(running())) == marks(a_view(later, written_at=NOW + 60))

    def test_tells_the_slots_that_changed_and_no_others(self) -> None:
        before = a_view(running(), running(1))
        after = a_view(running(), running(1, state="blind", why="no answer"))
        lines = changes(after, marks(before), marks(after), NOW)
        assert [line.split(",")[0] for line in lines] == ["slot 1"]

    def test_tells_the_run_when_its_controller_goes(self) -> None:
        before, after = a_view(running()), a_view(running(), controller=None, state="no controller")
        assert "no controller" in changes(after, marks(before), marks(after), NOW)[0]


@pytest.mark.parametrize(("seconds", "words"), [(59, "0:00:59"), (86399, "23:59:59"), (103164, "1 d 4 h")])
def test_days_are_said_as_days(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_a_job_that_should_be_gone_does_not_end_in_over() -> None:
    [_, line] = [line for line in plain_lines(a_view(running(ends_at=NOW - 5)), NOW) if "toy" in line or "slot" in line]
    assert "job past its walltime" in line
    assert "ends in" not in line


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("SIGUSR2", "handed over (Slurm announced its end)"),
        ("deadline", "handed over (its time was nearly over)"),
        ("it ended before its total", "handed over (it ended before its total)"),
    ],
)
def test_why_a_job_handed_over_is_said_in_words(cause: str, words: str) -> None:
    assert end_words("handed over", cause) == words
