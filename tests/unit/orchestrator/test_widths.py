"""Every screen on 80 and 120 columns, with few slots and with hundreds: no line is too long, and no word is broken."""

from __future__ import annotations

import io
from typing import Any

import pytest
from builders import NOW
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from anchorleg.words import INDENT, wrapped
from orchestrator.decisions.models import Verdict
from orchestrator.run.rundir import Entry
from orchestrator.screens.cells import runs_table
from orchestrator.screens.goodput import KINDS, JobGoodput, RunGoodput, SlotGoodput, Times, goodput_table, total
from orchestrator.screens.runview import ExcludedNode, RunView, SlotView
from orchestrator.screens.status import about, note_lines, run_table
from orchestrator.screens.summary import SlotSummary, summary_table

FOLDER = "/lustre/project/robots/somebody/runs"


def view_of(count: int) -> RunView:
    """Every third slot is at work, has failed, or waits."""
    states: tuple[dict[str, Any], ...] = (
        {"state": "running", "job_id": "81234567", "rate": 905.0, "ends_at": NOW + 7000, "step": 19_284_000},
        {"state": "failed", "why": "the last, job 81247 failed: the GPU ran out of memory (exit code 1), as the five "
         "jobs before it; nothing new was saved", "next": "mend it, then `orchestrator start mt10`"},
        {"state": "waiting", "last_verdict": Verdict.PREEMPTED, "last_cause": "preempted by another job",
         "why": "waits for its turn (other jobs have a higher priority)", "retry_at": NOW + 60, "next": "soon"},
    )  # fmt: skip
    return RunView(
        run_id="mt10-3f9c21ab", run_name="mt10", run_dir="/r", executor="slurm", state="running", controller_epoch=3,
        controller="process 4657 on login-with-a-long-name.cluster.example.org (`start --via daemon`, since 06:12:05)",
        wish="run", written_at=NOW - 3, blind_since=NOW - 400,
        blind_error="slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        excluded_nodes=(ExcludedNode(node="gpu[07-09]", until=NOW + 3600, deaths=2),),
        slots=tuple(SlotView(slot=k, total=20_000_000, jobs=123, **states[k % 3]) for k in range(count)),
    )  # fmt: skip


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


def summary_of_long(count: int) -> tuple[SlotSummary, ...]:
    """Of a long run, with something in every column."""
    known = {"jobs": 1234, "hand_overs": 1200, "steps": 20_000_000, "steps_lost": 1_234_567, "idle_s": 12345.6}
    known |= {"gaps": 1233, "evaluation": "62 % success (50 goals a task)"}
    return tuple(SlotSummary.model_validate({**known, "slot": k}) for k in range(count))


KNOWN = [
    Entry(run_name=name, run_id=f"{name}-3f9c21ab", run_dir=f"{FOLDER}/{name}", registered_at=NOW)
    for name in ("mt10", "mt50-three-seeds")
]
ENDED = "slot 20,000,000 1,234,567 12345.6 1,233 evaluation 62 % success (50 goals"
KINDS_SHOWN = " ".join(name for name, _ in KINDS)


def drawn(screen: RenderableType, width: int) -> str:
    out = Console(file=io.StringIO(), width=width, force_terminal=False)
    out.print(screen)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def assert_whole(screen: RenderableType, width: int, words: str) -> list[str]:
    """No line is longer than the screen, nothing is cut off, and each of the words stands there unbroken."""
    shown = drawn(screen, width)
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown
    assert set(words.split()) <= set(shown.split())
    return shown.splitlines()


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("count", [3, 40, 500])
def test_every_screen_shows_all_it_has(count: int, width: int) -> None:
    view, goodput = view_of(count), goodput_of_long(count)
    words = " ".join([line for line, _ in about(view, NOW)] + note_lines(view, NOW))
    assert_whole(run_table(view, NOW, width), width, words)
    productive = f"{2500 * count:,} h" if width == 120 else f"{2500 * count / 24:,.0f} d"
    lines = assert_whole(goodput_table(goodput, width), width, f"slot jobs {KINDS_SHOWN} {count * 1200:,} {productive}")
    assert len(lines) == count + 3
    assert_whole(summary_table(summary_of_long(count), width), width, ENDED)
    lines = assert_whole(runs_table(KNOWN, width), width, f"mt10-3f9c21ab 2025-10-10 {FOLDER}/mt50-three-seeds")
    assert (f"  {FOLDER}/mt10" in lines) == (width == 80)


def test_at_no_width_a_column_or_a_digit_is_lost() -> None:
    for width in range(40, 121):
        assert_whole(goodput_table(goodput_of_long(3), width), width, f"slot goodput {KINDS_SHOWN}")
        assert_whole(summary_table(summary_of_long(3), width), width, f"Summary {ENDED}")
    assert {"1,200", "jobs,", "4-3:43:20,"} <= set(drawn(goodput_table(goodput_of_long(3), 60), 60).split())


@given(st.text("ab -/`.", max_size=200), st.integers(1, 100))
def test_a_line_is_broken_between_words_only_and_loses_none(line: str, width: int) -> None:
    pieces = wrapped(line, width)
    assert " ".join(pieces).split() == line.split()
    room = max(width, len(line) - len(line.lstrip()) + len(INDENT) + 1)  # narrower than its own indent is nothing
    for piece in pieces:
        assert len(piece) <= room or len(piece.split()) == 1
