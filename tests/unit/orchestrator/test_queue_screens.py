from __future__ import annotations

import io
from typing import Any

import pytest
from builders import NOW, a_slot
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.config import RunConfig, parse_config
from orchestrator.decisions.models import Slot, SlotStatus
from orchestrator.screens.forecast import Work, left_s, places_of, queue_view
from orchestrator.screens.runview import STATES, RunView, SlotView
from orchestrator.screens.status import NAME_WIDTH, page_of, plain_lines, run_table, shortened

AXES = {"algorithm": ["ppo", "sac"], "learning_rate": [0.001, 0.0003]}


def a_config(slots: int, **queue: Any) -> RunConfig:
    grid = {**AXES, "seed": list(range(slots // 4 + 1))}
    rows = parse_config({"command": ["true"], "experiments": grid}, "c").experiments or ()
    value = {"command": ["true"], "experiments": rows[:slots], "queue": {"metric": "score", **queue}}
    return parse_config(value, "c")


def a_view(count: int) -> RunView:
    """Four at work, one failed, a third finished, the others wait."""
    config = a_config(count)
    states = ["running"] * min(4, count) + ["failed"] * (count > 4) + ["finished"] * (count // 3)
    states += ["waiting"] * (count - len(states))
    states = states[:count]
    slots = [
        Slot(index=k, step=900, total=10_000, worked_s=100.0, best=k / count, best_step=900,
             status=SlotStatus.FINISHED if state == "finished" else SlotStatus.ACTIVE)
        for k, state in enumerate(states)
    ]  # fmt: skip
    shown = tuple(
        SlotView(slot=k, name=config.name_of(k), state=state, step=900, total=10_000, best=k / count, jobs=3,
                 why="waits for room: 4 of 4 jobs (slurm.max_jobs) are taken" if state == "waiting" else "")
        for k, state in enumerate(states)
    )  # fmt: skip
    queue = queue_view(slots, states, [9.0 if state == "running" else None for state in states], config, 4)
    return RunView(
        run_id="sweep-1", run_name="sweep", run_dir="/r", executor="slurm", state="running", controller="process 1",
        controller_epoch=0, wish="run", written_at=NOW, queue=queue, slots=shown,
    )  # fmt: skip


def screen(count: int, width: int, **how: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=width, height=30).print(run_table(a_view(count), NOW, width, height=30, **how))
    return out.getvalue()


@pytest.mark.parametrize(("count", "width"), [(3, 80), (40, 80), (500, 120)])
def test_a_screen_holds_the_first_page_and_says_how_many_there_are(count: int, width: int) -> None:
    lines = screen(count, width).splitlines()
    assert len(lines) <= 30
    assert all(len(line) <= width for line in lines)
    assert any(line.startswith(f"{count} experiments: ") for line in lines)
    assert any(line.startswith("best score: ") for line in lines)
    assert ("--page 2" in "\n".join(lines)) == (count > 20)


def test_what_works_comes_first_and_every_slot_is_on_one_page() -> None:
    pages = [screen(40, 120, page=page) for page in (1, 2)]
    rows = [line.split()[0] for text in pages for line in text.splitlines() if line[:1].isdigit() and "algo" in line]
    assert rows[:5] == ["0", "1", "2", "3", "4"]
    assert sorted(rows, key=int) == [str(k) for k in range(40)]
    assert screen(40, 120, page=99) == screen(40, 120, page=2)


def test_a_pipe_gets_every_slot_with_its_name() -> None:
    lines = [line for line in plain_lines(a_view(40), NOW) if line.startswith("slot ")]
    assert len(lines) == 40
    assert lines[7].startswith("slot 7, algorithm=ppo,learning_rate=0.001,seed=7, finished")


@given(st.lists(st.sampled_from(STATES), max_size=60), st.integers(1, 20))
def test_the_pages_are_all_slots_once(states: list[str], room: int) -> None:
    _, pages = page_of(states, room, 1)
    found = [place for page in range(1, pages + 1) for place in page_of(states, room, page)[0]]
    assert sorted(found) == list(range(len(states)))
    assert max((len(page_of(states, room, page)[0]) for page in range(1, pages + 1)), default=0) <= room


UNKNOWN = Work(0, None, None)


@pytest.mark.parametrize(
    ("work", "places", "seconds"),
    [
        ([Work(0, 100, 1.0)] * 8, 4, 200.0),
        ([Work(0, 100, 1.0), Work(0, 10, 1.0)], 4, 100.0),  # never less than the longest
        ([Work(0, 100, 1.0), Work(0, 100, None), UNKNOWN], 1, 300.0),
        ([Work(0, 100, None)], 1, None),
        ([], 4, None),
        # Those that have not begun are as long as the others are in all, and not as what these have left.
        ([Work(99, 100, 1.0), *[UNKNOWN] * 8], 4, 801.0 / 4),
        ([Work(100, 100, 2.0, is_over=True), UNKNOWN], 4, 50.0),
        ([Work(100, 100, 2.0, is_over=True)], 4, None),
    ],
)
def test_the_whole_queue_takes_its_work_over_its_places(work: list[Work], places: int, seconds: float | None) -> None:
    assert left_s(work, places) == seconds


def test_places_are_those_of_jobs_that_run_unless_the_config_says_it() -> None:
    states = ["running"] * 3 + ["starting"] + ["pending"] * 496
    assert places_of(states, None, None) == 4
    assert places_of(states, 10, None) == 10
    assert places_of(states, 10, 6) == 6
    assert places_of(["pending"], None, 0) == 1


def test_the_best_are_by_the_goal_and_what_was_measured_stands_in_for_a_rate() -> None:
    slots = [a_slot(k, best=score, best_step=5, step=50, total=100, worked_s=10.0).built for k, score in
             enumerate([0.3, 0.9, 0.1])]  # fmt: skip
    most = queue_view(slots, ["waiting"] * 3, [None] * 3, a_config(3), 1)
    least = queue_view(slots, ["waiting"] * 3, [None] * 3, a_config(3, goal="min"), 1)
    assert [score.slot for score in most.best] == [1, 0, 2]
    assert [score.slot for score in least.best] == [2, 0, 1]
    assert (most.finish_in_s, most.rates_known, most.counts) == (30.0, 3, {"waiting": 3})


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("seed=3", "seed=3"),
        ("algorithm=ppo,learning_rate=0.001,seed=12", "algo=ppo,lear=0.001,seed=12"),
        ("x" * 40, "x" * 16 + "…" + "x" * 15),
    ],
)
def test_a_long_name_is_cut_where_it_tells_least(name: str, shown: str) -> None:
    assert shortened(name) == shown
    assert len(shown) <= NAME_WIDTH
