"""`status` and `goodput` as people see them. `test_status_page.py` compares whole screens."""

from __future__ import annotations

import io
from typing import Any

import pytest
from builders import NOW, a_slot
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from anchorleg.words import INDENT, table_lines, wrapped
from orchestrator.config import RunConfig, parse_config
from orchestrator.decisions.models import Verdict
from orchestrator.screens.cells import ranges
from orchestrator.screens.forecast import cost_of, cost_words, queue_view
from orchestrator.screens.goodput import KINDS, JobGoodput, RunGoodput, SlotGoodput, Times, goodput_table, total
from orchestrator.screens.runview import ExcludedNode, Forecast, RunView, SlotView, SuccessorView
from orchestrator.screens.status import about, changes, marks, note_lines, plain_lines, run_table, short
from orchestrator.screens.timeline import clock


def a_view(*slots: SlotView, **more: Any) -> RunView:
    known = {
        "run_id": "toy-0123abcd", "run_name": "toy", "run_dir": "/runs/toy", "executor": "slurm", "state": "running",
        "controller": "process 7 on login1", "controller_epoch": 3, "wish": "run", "written_at": NOW - 3,
    }  # fmt: skip
    return RunView.model_validate({**known, **more, "slots": slots})


def running(slot: int = 0, **more: Any) -> SlotView:
    known = {
        "slot": slot, "state": "running", "job_id": "1234567", "step": 1_234_567, "total": 20_000_000,
        "checkpoint_step": 1_200_000, "rate": 1234.5, "ends_at": NOW + 12_345, "jobs": 12,
        "forecast": Forecast(finish_in_s=123_456, more_jobs=9, waits_included=False),
        "progress": {"gpu_percent": 87.4, "success": 0.43},
    }  # fmt: skip
    return SlotView.model_validate(known | more)


def many(count: int) -> RunView:
    """Every third slot is at work, has failed, or waits."""
    states: tuple[dict[str, Any], ...] = (
        {"state": "running", "job_id": "81234567", "rate": 905.0, "ends_at": NOW + 7000, "step": 19_284_000},
        {"state": "failed", "why": "the last, job 81247 failed: the GPU ran out of memory (exit code 1), as the five "
         "jobs before it; nothing new was saved", "next": "fix it, then `orchestrator start mt10`"},
        {"state": "waiting", "last_verdict": Verdict.PREEMPTED, "last_cause": "preempted by another job",
         "why": "waits for its turn (other jobs have a higher priority)", "retry_at": NOW + 60, "next": "soon"},
    )  # fmt: skip
    return a_view(
        *(SlotView(slot=k, total=20_000_000, jobs=123, **states[k % 3]) for k in range(count)),
        controller="process 4657 on login-with-a-long-name.cluster.example.org (`start --via daemon`, since 06:12:05)",
        blind_since=NOW - 400,
        blind_error="slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        excluded_nodes=(ExcludedNode(node="gpu[07-09]", until=NOW + 3600, deaths=2),),
    )


def goodput_of_long(count: int) -> RunGoodput:
    """Of a long run, with something in every column."""
    parts = Times(
        queue_s=359_000, waiting_s=359_000, start_up_s=359_000, productive_s=9e6, saving_s=50_000, lost_s=50_000,
        blind_s=50_000,
    )  # fmt: skip
    jobs = (JobGoodput(attempt=0, times=parts),) * 1200
    return RunGoodput(
        run_id="mt10-1", run_name="mt10", run_dir="/runs/mt10", at=0, times=total([parts] * count),
        slots=tuple(SlotGoodput(slot=k, times=parts, jobs=jobs) for k in range(count)),
    )  # fmt: skip


def drawn(screen: RenderableType, width: int) -> str:
    out = Console(file=io.StringIO(), width=width, force_terminal=False)
    out.print(screen)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("count", [3, 500])
def test_no_line_is_too_long_and_no_word_is_broken(count: int, width: int) -> None:
    view = many(count)
    words = " ".join([line for line, _ in about(view, NOW)] + note_lines(view, NOW))
    kinds = " ".join(name for name, _ in KINDS)
    for screen, said in ((run_table(view, NOW, width), words), (goodput_table(goodput_of_long(count), width), kinds)):
        shown = drawn(screen, width)
        assert max(map(len, shown.splitlines())) <= width
        assert "…" not in shown
        assert set(said.split()) <= set(shown.split())


def test_a_screen_that_is_redrawn_shows_what_works_first() -> None:
    lines = drawn(run_table(many(60), NOW, 120, height=30), 120).splitlines()
    rows = [line.split()[0] for line in lines if line[:1].isdigit() and "1234567" in line]
    assert rows == [str(k) for k in range(0, 60, 3)]
    assert "20 of 60 slots" in "\n".join(lines)


@given(st.text("ab -/`.", max_size=200), st.integers(1, 100))
def test_a_line_is_broken_between_words_only_and_loses_none(line: str, width: int) -> None:
    pieces = wrapped(line, width)
    assert " ".join(pieces).split() == line.split()
    room = max(width, len(line) - len(line.lstrip()) + len(INDENT) + 1)  # narrower than its own indent is nothing
    for piece in pieces:
        assert len(piece) <= room or len(piece.split()) == 1 or "`" in piece
    assert wrapped("type `a b c` now", 8) == ["type", "  `a b c`", "  now"]


def test_a_table_that_is_too_wide_is_a_line_a_row_with_the_names_of_its_parts() -> None:
    names, rows = ("run", "steps"), [("a long name", "100"), ("b", "5")]
    assert table_lines(names, rows, 18) == ["run          steps", "a long name  100", "b            5"]
    assert table_lines(names, rows, 17) == ["run a long name, steps 100", "run b, steps 5"]


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
        ([running(successor=HELD)], ["slot 0: the next job is held by you"]),
        ([SlotView(slot=0, state="failed", why="wrong task", next="fix it, then `orchestrator start toy`")],
         ["slot 0: wrong task; fix it, then `orchestrator start toy`"]),
        ([running(1, last_verdict=Verdict.CRASHED, last_cause="out of memory")],
         ["slot 1: its last job failed: out of memory"]),
        ([SlotView(slot=0, state="pending", job_id="8", why="waits for its turn",
                   last_verdict=Verdict.CRASHED, last_cause="No module named 'torch' (exit code 1)")],
         ["slot 0: waits for its turn", "slot 0: its last job failed: No module named 'torch' (exit code 1)"]),
        ([running(1, last_verdict=Verdict.HANDED_OVER, last_cause="its node failed")],
         ["slot 1: last job: handed over (its node failed)"]),
        ([running(silent_s=300.0)], ["slot 0: no report from its program for 0:05:00"]),
    ],
)  # fmt: skip
def test_notes_say_what_slots_wait_for(slots: list[SlotView], lines: list[str]) -> None:
    assert note_lines(a_view(*slots), NOW) == lines


LOOKED = "controller: process 7 on login1, last check 3 s ago"
SINCE = f"{clock(NOW - 300, NOW)} (0:05:00 ago)"
BLIND = f"the queue has not answered since {SINCE}: squeue timed out; nothing is submitted until it does"
NOBODY = {"controller": None, "state": "no controller", "failover_tick": True}
AGAIN = "no controller, last check 3 s ago; continue with `orchestrator start toy`"


@pytest.mark.parametrize(
    ("view", "lines"),
    [
        (a_view(blind_since=NOW - 300, blind_error="squeue timed out",
                excluded_nodes=(ExcludedNode(node="gpu[07]", until=NOW + 3600, deaths=2),)),
         [LOOKED, BLIND, f"avoids node gpu[07] until {clock(NOW + 3600, NOW)}: 2 jobs died early on it"]),
        (a_view(until=NOW + 90),
         [LOOKED, f"until {clock(NOW + 90, NOW)} (in 0:01:30): then every job saves and ends"]),
        (a_view(until=NOW + 90, state="finished"), [LOOKED]),
        (a_view(running(), **NOBODY),
         [AGAIN, f"a job that ends after {clock(NOW - 3 + 300, NOW)} submits the next jobs itself"]),
        (a_view(running(why="its job ended, and no controller has checked since"), **NOBODY), [AGAIN]),
    ],
)  # fmt: skip
def test_what_concerns_the_whole_run_stands_on_top(view: RunView, lines: list[str]) -> None:
    assert [line for line, _ in about(view, NOW)] == lines
    shown = drawn(run_table(view, NOW, 120), 120)
    assert all(word in shown for word in "".join(lines).split() if "[" in word)  # brackets are no markup


def test_a_pipe_gets_one_line_a_slot_and_while_it_watches_what_changed() -> None:
    before = a_view(running(), running(1, ends_at=NOW - 5))
    lines = plain_lines(before, NOW)
    assert lines[2].startswith("slot 0, running, job 1234567, step 1,234,567/20,000,000, saved at 1,200,000, 1,234 ")
    assert ", job past its walltime, done in >1 d 10 h, " in lines[3]
    counted_on = a_view(running(step=1_300_000, rate=99.0, ends_at=NOW + 1), running(1), written_at=NOW + 60)
    lost = a_view(running(), running(1, state="blind", why="no answer"))
    alone = a_view(running(), running(1), controller=None, state="no controller")
    assert len(changes(before, {}, marks(before), NOW)) == 4
    assert marks(counted_on) == marks(before)
    assert [line.split(",")[0] for line in changes(lost, marks(before), marks(lost), NOW)] == ["slot 1"]
    assert "no controller" in changes(alone, marks(before), marks(alone), NOW)[0]


# --- all experiments, and what steps cost -----------------------------------------------------------------------------


def a_config(goal: str) -> RunConfig:
    queue = {"metric": "score", "goal": goal}
    return parse_config({"command": ["true"], "experiments": {"seed": [0, 1, 2]}, "queue": queue}, "c")


def test_the_best_are_by_the_goal() -> None:
    slots = [a_slot(k, best=score, best_step=5).built for k, score in
             enumerate([0.3, 0.9, 0.1])]  # fmt: skip
    most, least = (queue_view(slots, ["waiting"] * 3, a_config(goal)) for goal in ("max", "min"))
    assert most is not None
    assert least is not None
    assert [score.slot for score in most.best] == [1, 0, 2]
    assert [score.slot for score in least.best] == [2, 0, 1]
    assert most.counts == {"waiting": 3}


def test_slots_share_the_price_and_what_is_not_in_it_is_counted() -> None:
    an_hour, two_hours = running(0, rate=100.0, step=0, total=360_000), running(1, rate=50.0, step=0, total=360_000)
    others = [running(2, state="waiting", rate=None, step=0), running(3, rate=None, step=9, total=9)]
    over = [running(4, state=state, rate=None) for state in ("finished", "failed", "dropped", "behind")]
    cost = cost_of(a_view(an_hour, two_hours, *others, *over), 3.0)
    assert cost is not None
    assert (cost.steps_per_s, cost.left_s, cost.left, cost.others) == (150.0, 7200.0, 6.0, 1)
    assert cost.per_million_steps == pytest.approx(1e6 / 150 / 3600 * 3)
    assert cost_words(cost, 3.0) == (
        "at 3 an hour and 150.0 steps/s: 1,000,000 steps ≈ 5.56; the remaining 720,000 ≈ 6.00 (in 2:00:00); "
        "not included: 1 unfinished slot without a measured rate; restarts and idle time cost extra"
    )
    endless = cost_of(a_view(running(0, rate=10.0), running(1, rate=10.0, total=None)), 1.0)
    assert endless is not None
    assert (endless.left_s, endless.left) == (None, None)
    assert cost_of(a_view(running(rate=None), running(1, rate=0.0)), 2.5) is None
