"""Every screen on 80 and 120 columns, with few slots and with hundreds: no line is too long, and no word is broken."""

from __future__ import annotations

import io
from typing import Any

import pytest
from builders import NOW
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from anchorleg.wrapping import INDENT, wrapped
from orchestrator.decisions.models import Verdict
from orchestrator.run.registry import Entry
from orchestrator.screens.goodput import JobGoodput, RunGoodput, SlotGoodput, Times, total
from orchestrator.screens.status import ExcludedNode, RunView, SlotView
from orchestrator.screens.summary import RunSummary, SlotSummary
from orchestrator.screens.tables import KINDS, goodput_table, runs_table, summary_table
from orchestrator.screens.views import about, note_lines, run_table

WIDTHS = [80, 120]
SLOTS = [3, 40, 500]
ERROR = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)"


def drawn(screen: RenderableType, width: int) -> str:
    out = Console(file=io.StringIO(), width=width, force_terminal=False)
    out.print(screen)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def assert_whole(shown: str, width: int, words: str) -> None:
    """No line is longer than the screen, nothing is cut off, and each of the words stands there unbroken."""
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    assert set(words.split()) <= set(shown.split())


def slots(count: int) -> tuple[SlotView, ...]:
    """Every third is at work, has failed, or waits."""
    states: tuple[dict[str, Any], ...] = (
        {"state": "running", "job_id": "81234567", "rate": 905.0, "ends_at": NOW + 7000, "step": 19_284_000},
        {"state": "failed", "why": "the last, job 81247 failed: the GPU ran out of memory (exit code 1), as the five "
         "jobs before it; nothing new was saved", "next": "mend it, then `orchestrator start mt10`"},
        {"state": "waiting", "last_verdict": Verdict.PREEMPTED, "last_cause": "preempted by another job",
         "why": "waits for its turn (other jobs have a higher priority)", "retry_at": NOW + 60, "next": "soon"},
    )  # fmt: skip
    return tuple(SlotView(slot=k, total=20_000_000, jobs=123, **states[k % 3]) for k in range(count))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", SLOTS)
def test_status(count: int, width: int) -> None:
    view = RunView(
        run_id="mt10-3f9c21ab", run_name="mt10", run_dir="/r", executor="slurm", state="running", controller_epoch=3,
        controller="process 4657 on login-with-a-long-name.cluster.example.org (`start --via daemon`, since 06:12:05)",
        wish="run", written_at=NOW - 3, blind_since=NOW - 400, blind_error=ERROR, slots=slots(count),
        excluded_nodes=(ExcludedNode(node="gpu[07-09]", until=NOW + 3600, deaths=2),),
    )  # fmt: skip
    words = [line for line, _ in about(view, NOW)] + note_lines(view, NOW)

    assert_whole(drawn(run_table(view, NOW, width), width), width, " ".join(words))


def goodput(count: int) -> RunGoodput:
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


def summary(count: int) -> RunSummary:
    """Of a long run, with something in every column."""
    return RunSummary(
        slots=tuple(
            SlotSummary(
                slot=k, jobs=1234, hand_overs=1200, steps=20_000_000, steps_lost=1_234_567, idle_s=12345.6, gaps=1233,
                evaluation="62 % success (50 goals a task)",
            )
            for k in range(count)
        ),
        lines=("Everything is in /home/somebody/runs/mt10",),
    )  # fmt: skip


@pytest.mark.parametrize("count", [1, 3])
def test_at_no_width_a_column_or_a_digit_of_what_is_over_is_lost(count: int) -> None:
    kinds = " ".join(name for name, _ in KINDS)
    ended = "20,000,000 1,234,567 12345.6 1,233 evaluation 62 % success (50 goals"
    for width in range(40, 121):
        assert_whole(drawn(goodput_table(goodput(count), width), width), width, f"slot goodput {kinds}")
        assert_whole(drawn(summary_table(summary(count), width), width), width, f"Summary slot {ended}")


def test_on_a_terminal_that_holds_no_table_there_are_lines() -> None:
    shown = drawn(goodput_table(goodput(3), 60), 60).split()
    assert {"1,200", "jobs,", "4-3:43:20,"} <= set(shown)
    shown = drawn(summary_table(summary(3), 60), 60).split()
    assert {"1,234", "jobs,", "1,200", "hand-overs,"} <= set(shown)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", SLOTS)
def test_goodput(count: int, width: int) -> None:
    shown = drawn(goodput_table(goodput(count), width), width)

    productive = f"{2500 * count:,} h" if width == 120 else f"{2500 * count / 24:,.0f} d"
    assert_whole(shown, width, f"slot jobs goodput productive {count * 1200:,} {productive}")
    assert len(shown.splitlines()) == count + 3
    assert ("4-3:43:20" in shown) == (width == 120)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("count", SLOTS)
def test_the_summary(count: int, width: int) -> None:
    shown = drawn(summary_table(summary(count), width), width)

    words = (
        "slot hand-overs steps trained lost 20,000,000 1,234,567 12345.6 1,233 gaps evaluation 62 % success (50 goals"
    )
    assert_whole(shown, width, words)


@pytest.mark.parametrize("width", WIDTHS)
def test_runs(width: int) -> None:
    folder = "/lustre/project/robots/somebody/runs"
    known = [
        Entry(run_name=name, run_id=f"{name}-3f9c21ab", run_dir=f"{folder}/{name}", registered_at=NOW)
        for name in ("mt10", "mt50-three-seeds")
    ]

    shown = drawn(runs_table(known, width), width)

    words = f"mt10-3f9c21ab mt50-three-seeds-3f9c21ab 2025-10-10 {folder}/mt10 {folder}/mt50-three-seeds"
    assert_whole(shown, width, words)
    assert (f"  {folder}/mt10" in shown.splitlines()) == (width == 80)


@given(st.text("ab -/`.", max_size=200), st.integers(1, 100))
def test_a_line_is_broken_between_words_only_and_loses_none(line: str, width: int) -> None:
    pieces = wrapped(line, width)
    assert " ".join(pieces).split() == line.split()
    room = max(width, len(line) - len(line.lstrip()) + len(INDENT) + 1)  # narrower than its own indent is nothing
    for piece in pieces:
        assert len(piece) <= room or len(piece.split()) == 1
