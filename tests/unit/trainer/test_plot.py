from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("matplotlib")

from orchestrator.job import write_json
from syncd import store
from trainer.errors import ConfigError, SaveError
from trainer.showing.learning import EPISODES_A_POINT, curves_of, find, mean_over_slots, window_rows
from trainer.showing.plot import caption, draw

pytestmark = pytest.mark.trainer
TASKS = ("reach-v3", "push-v3")


def a_row(number, *per_task, every=100):
    """`per_task`: (episodes, successes, sum of returns) of each task."""
    tasks = {}
    for task, (episodes, solved, earned) in zip(TASKS, per_task, strict=False):
        tasks[task] = {"episodes": episodes, "temperature": 0.1}
        if episodes:
            tasks[task] |= {"success": solved / episodes, "return": earned / episodes}
    return {"from": number * every, "to": (number + 1) * every, "updates": 1, "tasks": tasks}


def an_evaluation(step, rate, goals=50):
    success = dict.fromkeys(TASKS, rate)
    return {"step": step, "success": success, "mean_success": rate, "goals_per_task": goals}


COUNTS = st.tuples(st.integers(0, 9), st.integers(0, 9), st.floats(-100, 4000)).map(lambda c: (c[0], min(c[:2]), c[2]))


@given(st.lists(st.tuples(COUNTS, COUNTS), min_size=1, max_size=40))
def test_a_point_is_the_mean_over_tasks_of_the_episodes_in_its_window(counts):
    curves = curves_of("run", 0, [a_row(number, *row) for number, row in enumerate(counts)], [])
    for end in range(len(counts)):
        window = counts[max(0, end + 1 - curves.window_rows) : end + 1]
        seen = [k for k in range(2) if sum(row[k][0] for row in window)]
        for values, which in ((curves.success, 1), (curves.returns, 2)):
            if not seen:
                assert np.isnan(values[end])
                continue
            # A task without episodes in a row has no return there either.
            sums = [sum(row[k][which] for row in window if row[k][0]) / sum(row[k][0] for row in window) for k in seen]
            assert values[end] == pytest.approx(np.mean(sums), abs=1e-6)


@given(st.integers(1, 400), st.integers(1, 400).map(lambda eighths: eighths / 8))  # their sums are exact
def test_a_window_has_twenty_episodes_a_task_or_is_a_fifth_of_the_run(rows, a_row_has):
    window = window_rows(np.full((rows, 3), a_row_has))
    assert 1 <= window <= max(1, rows // 5)
    assert window * a_row_has >= EPISODES_A_POINT or window == max(1, rows // 5)
    assert (window - 1) * a_row_has < EPISODES_A_POINT


def test_the_mean_of_slots_ends_where_the_shortest_does():
    long = curves_of("run", 0, [a_row(n, (1, 1, 10.0), (1, 0, 0.0)) for n in range(10)], [])
    short = curves_of("run", 1, [a_row(n, (1, 0, 30.0), (1, 0, 0.0)) for n in range(4)], [])
    step, mean = mean_over_slots([long, short], "success")
    assert (step[0], step[-1]) == (100, 400)
    assert np.allclose(mean, 0.25)
    assert mean_over_slots([long], "success")[0].size == 0  # one slot is its own mean


def test_an_evaluations_bar_is_its_own_uncertainty():
    [few, many] = curves_of(
        "run", 0, [a_row(0, (1, 1, 1.0))], [an_evaluation(50, 0.5, 5), an_evaluation(99, 0.5)]
    ).evaluations
    assert many.half_width == pytest.approx(1.96 * np.sqrt(0.25 / 100))  # two tasks of 50 goals
    assert few.half_width == pytest.approx(many.half_width * np.sqrt(10))
    [all_solved] = curves_of("run", 0, [a_row(0, (1, 1, 1.0))], [an_evaluation(50, 1.0, 5)]).evaluations
    assert 0.1 < all_solved.half_width < 0.5


def a_run(folder, slots=2, rows=30):
    for slot in range(slots):
        attempt = folder / "slots" / str(slot) / "attempts" / "0"
        attempt.mkdir(parents=True)
        write_json(attempt / "parent.json", {"attempt": None, "step": 0, "checkpoint": None})
        lines = [a_row(n, (5, min(5, n // 5), 100.0 * n), (5, 0, 0.0)) for n in range(rows)]
        (attempt / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
        (attempt / "evaluations.jsonl").write_text(json.dumps(an_evaluation(rows * 100, 0.4)) + "\n")
    return folder


def test_a_mirror_shows_the_same_curves_as_the_run_itself(tmp_path):
    run = a_run(tmp_path / "run", slots=1)
    place = store.Shared(tmp_path / "mirror").slot("run-0123abcd", 0)
    attempt = run / "slots/0/attempts/0"
    for name in ("metrics", "evaluations"):
        store.write_metrics(place, name, [json.loads(line) for line in (attempt / f"{name}.jsonl").open()])
    [own], [mirrored], [slot] = find(run), find(tmp_path / "mirror"), find(run / "slots/0")
    for name in ("step", "success", "returns"):
        assert np.array_equal(getattr(own, name), getattr(mirrored, name))
        assert np.array_equal(getattr(own, name), getattr(slot, name))
    assert own.evaluations == mirrored.evaluations
    assert (own.run, mirrored.run, slot.run) == ("run", "run-0123abcd", "run")


def size_of(png):
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


@pytest.mark.parametrize("names", [("one",), ("one", "two")])
def test_the_picture_has_the_size_that_it_should(tmp_path, names):
    slots = [curves for name in names for curves in find(a_run(tmp_path / name))]
    draw(slots, tmp_path / "new folder" / "curves.png", "title")
    assert size_of(tmp_path / "new folder" / "curves.png") == (1200, 800)
    assert "50 goals a task" in caption(slots)
    assert "400 steps" in caption(slots)


def test_a_slot_with_a_single_row_and_no_episode_is_drawn_too(tmp_path):
    draw([curves_of("run", 0, [a_row(0, (0, 0, 0.0))], [])], tmp_path / "curves.png", "title")
    assert size_of(tmp_path / "curves.png") == (1200, 800)


def test_nothing_to_draw_is_one_sentence(tmp_path):
    with pytest.raises(ConfigError, match="there is no run at"):
        find(tmp_path / "absent")
    with pytest.raises(ConfigError, match="has no metrics yet"):
        find(a_run(tmp_path / "run", rows=0))
    slots = find(a_run(tmp_path / "other"))
    with pytest.raises(ConfigError, match=r"ends in \.png"):
        draw(slots, tmp_path / "curves.pdf", "title")
    (tmp_path / "file").write_text("")
    with pytest.raises(SaveError, match="choose another --out"):
        draw(slots, tmp_path / "file" / "curves.png", "title")
