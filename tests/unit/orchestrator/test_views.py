"""`status`: notes in words, lines for a pipe, what steps cost. `test_status_page.py` compares whole screens."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from builders import NOW
from hypothesis import given
from hypothesis import strategies as st
from relay import NewRelay
from rich.console import Console

from orchestrator.decisions.models import Verdict
from orchestrator.screens.cells import ranges, span
from orchestrator.screens.cost import cost_of, cost_words
from orchestrator.screens.runview import ExcludedNode, Forecast, RunView, SlotView, SuccessorView
from orchestrator.screens.status import about, done_in, note_lines, plain_lines, run_table, short
from orchestrator.screens.timeline import clock, end_words
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


def drawn(view: RunView, width: int) -> str:
    out = Console(file=io.StringIO(), width=width, force_terminal=False)
    out.print(run_table(view, NOW, width))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_a_column_that_nobody_fills_is_left_out() -> None:
    words = drawn(a_view(running(progress={}, forecast=None)), 120).split()
    assert not {"GPU", "done"} & set(words)


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (9_999, "9,999"), (10_000, "10k"), (999_999, "999k"), (1_234_567, "1.23M"), (1_200_000, "1.2M"),
     (19_999_999, "19.9M"), (20_000_000, "20M"), (1_005_000, "1M"), (1_050_000, "1.05M"), (2_000_000_000, "2G")],
)  # fmt: skip
def test_short_numbers_are_cut_off_and_never_rounded_up(value: int, words: str) -> None:
    assert short(value) == words


@given(st.lists(st.integers(0, 50), unique=True, min_size=1).map(sorted))
def test_ranges_name_exactly_the_slots(numbers: list[int]) -> None:
    named = []
    for part in ranges(numbers).split(", "):
        first, _, last = part.partition("-")
        named += range(int(first), int(last or first) + 1)
    assert named == numbers


IN_TWELVE_MINUTES = f"at {clock(NOW + 720, NOW)} (in 0:12:00)"
HELD = SuccessorView(attempt=3, job_id="124", state="pending", why="is held by you")


@pytest.mark.parametrize(
    ("slots", "lines"),
    [
        ([SlotView(slot=k, state="pending", why="waits for its turn") for k in (0, 1, 2, 5)],
         ["slots 0-2, 5: waits for its turn"]),
        ([SlotView(slot=0, state="pending", why="is next", expected_start_at=NOW + 720)],
         [f"slot 0: is next; Slurm expects to start it {IN_TWELVE_MINUTES}"]),
        ([running(successor=HELD)], ["slot 0: the next job, 124, is held by you"]),
        ([running(successor=HELD.model_copy(update={"why": ""}))], []),
        ([SlotView(slot=0, state="failed", why="wrong task", next="mend it, then `orchestrator start toy`")],
         ["slot 0: wrong task; mend it, then `orchestrator start toy`"]),
        ([running(1, last_verdict=Verdict.CRASHED, last_cause="out of memory")],
         ["slot 1: last job: crashed (out of memory)"]),
        ([running(silent_s=300.0)], ["slot 0: no report from its program for 0:05:00"]),
    ],
)  # fmt: skip
def test_notes_say_what_slots_wait_for(slots: list[SlotView], lines: list[str]) -> None:
    assert note_lines(a_view(*slots), NOW) == lines


LOOKED = "controller: process 7 on login1, last look 3 s ago"
BLIND = f"blind since {clock(NOW - 300, NOW)} (0:05:00 ago): squeue timed out; nothing is submitted meanwhile"
UNTIL = f"until {clock(NOW + 90, NOW)} (in 0:01:30): then every job saves and ends"
NOBODY = {"controller": None, "state": "no controller", "failover_tick": True}
AGAIN = "no controller, last look 3 s ago; take it up again with `orchestrator start toy`"


@pytest.mark.parametrize(
    ("view", "lines"),
    [
        (a_view(blind_since=NOW - 300, blind_error="squeue timed out",
                excluded_nodes=(ExcludedNode(node="gpu[07]", until=NOW + 3600, deaths=2),)),
         [LOOKED, BLIND, f"avoids node gpu[07] until {clock(NOW + 3600, NOW)}: 2 jobs died early on it"]),
        (a_view(until=NOW + 90), [LOOKED, UNTIL]),
        (a_view(until=NOW + 90, state="finished"), [LOOKED]),
        (a_view(running(), **NOBODY),
         [AGAIN, f"a job that ends after {clock(NOW - 3 + 300, NOW)} looks after the run itself"]),
        (a_view(running(why="its job has ended since, and nobody has looked"), **NOBODY), [AGAIN]),
    ],
)  # fmt: skip
def test_what_concerns_the_whole_run_stands_on_top(view: RunView, lines: list[str]) -> None:
    assert [line for line, _ in about(view, NOW)] == lines
    assert all(word in drawn(view, 120) for word in "".join(lines).split() if "[" in word)  # brackets are no markup


def test_a_forecast_that_leaves_waits_out_is_a_lower_bound() -> None:
    known = running(forecast=Forecast(finish_in_s=60, more_jobs=1, waits_included=True))
    assert (done_in(known), done_in(running())) == ("0:01:00", ">1 d 10 h")


def test_a_pipe_gets_one_line_a_slot_without_colours() -> None:
    successor = SuccessorView(attempt=3, job_id="124", state="pending")
    lines = plain_lines(a_view(running(), running(1, successor=successor, ends_at=NOW - 5)), NOW)
    assert len(lines) == 4
    assert lines[2].startswith("slot 0, running, job 1234567, step 1,234,567/20,000,000, saved at 1,200,000, 1,234 ")
    assert ", job past its walltime, " in lines[3]
    assert lines[3].endswith(", next job 124")
    assert "\x1b" not in "".join(lines)


def test_watching_in_a_pipe_tells_what_changed_and_is_silent_while_numbers_only_count_on() -> None:
    before = a_view(running(), running(1))
    counted_on = a_view(running(step=1_300_000, rate=99.0, ends_at=NOW + 1), running(1), written_at=NOW + 60)
    lost = a_view(running(), running(1, state="blind", why="no answer"))
    alone = a_view(running(), running(1), controller=None, state="no controller")
    assert len(changes(before, {}, marks(before), NOW)) == 4
    assert marks(counted_on) == marks(before)
    assert [line.split(",")[0] for line in changes(lost, marks(before), marks(lost), NOW)] == ["slot 1"]
    assert "no controller" in changes(alone, marks(before), marks(alone), NOW)[0]


@pytest.mark.parametrize(("seconds", "words"), [(59, "0:00:59"), (86399, "23:59:59"), (103164, "1 d 4 h")])
def test_days_are_said_as_days(seconds: float, words: str) -> None:
    assert span(seconds) == words


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


class TestCost:
    def test_a_machine_at_one_an_hour_that_makes_a_million_steps_an_hour(self) -> None:
        view = a_view(running(rate=1e6 / 3600, step=0, total=3_000_000))
        assert cost_words(cost_of(view, 1.0), 1.0) == (
            "at 1 an hour and 277.8 steps/s: 1,000,000 steps ≈ 1.00; the 3,000,000 that are left ≈ 3.00 (in 3:00:00); "
            "restarts and idle time come on top"
        )

    def test_slots_share_the_price_and_what_is_not_in_it_is_counted(self) -> None:
        an_hour, two_hours = running(0, rate=100.0, step=0, total=360_000), running(1, rate=50.0, step=0, total=360_000)
        waits = running(2, state="waiting", rate=None, step=0)
        done = running(3, rate=None, step=9, total=9)
        over = [running(4, state=state, rate=None) for state in ("finished", "failed", "dropped", "behind")]
        cost = cost_of(a_view(an_hour, two_hours, waits, done, *over), 3.0)
        assert cost is not None
        assert (cost.steps_per_s, cost.left_s, cost.left, cost.others) == (150.0, 7200.0, 6.0, 1)
        assert cost.per_million_steps == pytest.approx(1e6 / 150 / 3600 * 3)

    def test_a_program_that_does_not_say_its_length_has_a_price_a_step_only(self) -> None:
        cost = cost_of(a_view(running(0, rate=10.0), running(1, rate=10.0, total=None)), 1.0)
        assert cost is not None
        assert (cost.left_s, cost.left) == (None, None)
        assert "left" not in cost_words(cost, 1.0)

    def test_without_a_measured_rate_nothing_is_made_up(self) -> None:
        assert cost_of(a_view(running(rate=None), running(1, rate=0.0)), 2.5) is None
        assert cost_words(None, 2.5) == "at 2.5 an hour: no running slot has told how fast it is yet"

    @pytest.mark.long
    def test_the_command_prices_what_it_shows_and_refuses_a_price_that_is_none(self, new_relay: NewRelay) -> None:
        relay = new_relay(total=10)
        assert relay.run("start").code == 0
        assert "at 1.006 an hour: no running slot has told" in relay.run("status", "--price", "1.006").out
        assert json.loads(relay.run("status", "--price", "2", "--json").out)["cost"] is None
        assert "cost" not in relay.status()
        for words in (("0",), ("nan",), ("inf",), ("1", "--watch")):
            relay.run("status", "--price", *words).assert_refused(2, "[cli.price]")
