"""Curves of runs and mirrors as numbers, tables, pictures and JSON."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused
from rich.console import Console

pytest.importorskip("matplotlib")

from anchorleg.files import write_json
from anchorleg.words import wilson
from syncd import store
from trainer.config.section import TrainingSection, resolve
from trainer.evaluation.protocol import iqm
from trainer.showing import plot
from trainer.showing.learning import aligned, curves_of, find_curves, mean_over
from trainer.showing.plot import GROUPS, caption, draw_curves, draw_tasks
from trainer.showing.summary import MIN_SEEDS, iqm_of, mean_of, summaries
from trainer.showing.tables import runs_as_json, show_runs

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


def an_evaluation(step, *rates, goals=50, **more):
    return {"step": step, "success": dict(zip(TASKS, rates, strict=True)), "goals_per_task": goals, **more}


def by_return(step, earned):
    return an_evaluation(step, 0, 0, score="return", returns=dict.fromkeys(TASKS, earned))


def a_slot(slot, *evaluations, run="run"):
    return curves_of(run, slot, [a_row(0, (1, 1, 1.0), (1, 0, 0.0))], evaluations)


COUNTS = st.tuples(st.integers(0, 9), st.integers(0, 9), st.floats(-100, 4000)).map(lambda c: (c[0], min(c[:2]), c[2]))


@given(st.lists(st.tuples(COUNTS, COUNTS), min_size=1, max_size=40))
def test_a_point_is_each_tasks_episodes_in_its_window_and_their_mean_over_tasks(counts):
    curves = curves_of("run", 0, [a_row(number, *row) for number, row in enumerate(counts)], [])
    for end in range(len(counts)):
        window = counts[max(0, end + 1 - curves.window_rows) : end + 1]
        for name, which in (("success", 1), ("returns", 2)):
            rates = []
            for k, task in enumerate(TASKS):
                # A task without episodes in a row has no return there either.
                rows = [row[k] for row in window if row[k][0]]
                at = getattr(curves, name)[end, curves.tasks.index(task)]
                if not rows:
                    assert np.isnan(at)
                    continue
                rates.append(sum(row[which] for row in rows) / sum(row[0] for row in rows))
                assert at == pytest.approx(rates[-1], abs=1e-6)
            mean = curves.mean(name)[end]
            assert mean == pytest.approx(np.mean(rates), abs=1e-6) if rates else np.isnan(mean)


def test_slots_together_end_where_the_shortest_does():
    long = curves_of("run", 0, [a_row(n, (1, 1, 10.0), (1, 0, 0.0)) for n in range(10)], [])
    short = curves_of("run", 1, [a_row(n, (1, 0, 30.0), (1, 0, 0.0)) for n in range(4)], [])
    step, values = aligned([long, short], "success")
    assert (step[0], step[-1], values.shape) == (100, 400, (2, 4, 2))
    assert np.allclose(mean_over(values, (0, 2)), 0.25)
    unseen = curves_of("run", 2, [a_row(0, (0, 0, 0.0))], [])
    assert aligned([long, unseen], "success")[0].size == 0


def test_intervals_are_over_episodes_and_from_three_seeds_on_over_seeds():
    half, agreed = np.full((1, 2), 0.5), np.full((3, 4), 0.5)
    assert (mean_of(half, 50).low, mean_of(half, 50).high) == wilson(0.5, 100)
    for of, episodes in ((mean_of, 60), (iqm_of, 30)):  # a few that happen to agree are no certainty
        assert (of(agreed, 5).low, of(agreed, 5).high) == wilson(0.5, episodes)
    # Two tasks, on each of which one seed of three fails: the mean of six draws of 2/3. None knows the others.
    found = mean_of(np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), 50)
    # P(at most one success of six) = 0.018 < 2.5 % < P(at most two) = 0.1
    assert (found.value, found.low, found.high) == (pytest.approx(2 / 3), pytest.approx(2 / 6), 1.0)
    rates = np.array([[0.0, 0.2, 0.4, 0.6], [0.2, 0.4, 0.6, 1.0], [0.0, 0.2, 0.8, 1.0]])
    for slots in (1, MIN_SEEDS):
        found = iqm_of(rates[:slots], 50)
        assert found.value == pytest.approx(iqm(rates[:slots].ravel()))
        assert found.low < found.value < found.high


def test_a_run_is_judged_where_all_its_slots_were():
    slots = [
        a_slot(0, an_evaluation(100, 0.2, 0.4), an_evaluation(200, 1.0, 0.8), an_evaluation(300, 0.0, 0.0)),
        a_slot(1, an_evaluation(100, 0.4, 0.6), an_evaluation(200, 0.4, 0.2)),
    ]
    [run] = summaries(slots)
    assert [one.steps for one in run.history] == [(100, 100), (200, 200)]
    assert run.last.mean().value == pytest.approx(0.6)
    assert run.best.steps == (200, 100)  # each slot's own
    assert run.final == pytest.approx(np.mean([np.mean([0.3, 0.9, 0.0]), np.mean([0.5, 0.3])]))
    assert (run.last.task("reach-v3").value, run.about) == (pytest.approx(0.7), "episodes")


def a_run(folder, slots=2, rows=30):
    for slot in range(slots):
        attempt = folder / "slots" / str(slot) / "attempts" / "0"
        attempt.mkdir(parents=True)
        write_json(attempt / "parent.json", {"attempt": None, "step": 0, "checkpoint": None})
        lines = [a_row(n, (5, min(5, n // 5), 100.0 * n), (5, 0, 0.0)) for n in range(rows)]
        (attempt / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
        (attempt / "evaluations.jsonl").write_text(json.dumps(an_evaluation(rows * 100, 0.4, 0.4)) + "\n")
    return folder


def test_a_mirror_shows_the_same_curves_as_the_run_itself_and_each_slot_once(tmp_path):
    run, other = a_run(tmp_path / "a/run", slots=1), a_run(tmp_path / "b/run", slots=1)
    place = store.Shared(tmp_path / "mirror").slot("run-0123abcd", 0)
    for name in ("metrics", "evaluations"):
        rows = (run / f"slots/0/attempts/0/{name}.jsonl").open()
        store.write_metrics(place, name, [json.loads(line) for line in rows])
    place.manifests.mkdir()
    own, mirrored = find_curves(run, run / "slots/0"), find_curves(tmp_path / "mirror", place.path)
    assert [curves.run for curves in own + mirrored] == ["run", "run-0123abcd"]
    for name in ("step", "success", "returns"):
        assert np.array_equal(getattr(own[0], name), getattr(mirrored[0], name))
    assert own[0].evaluations == mirrored[0].evaluations
    assert [curves.run for curves in find_curves(run, other)] == [str(run), str(other)]


def test_slots_of_other_tasks_or_settings_are_no_seeds_of_one_training(tmp_path):
    rows = [{"from": 0, "to": 9, "tasks": {"door-open-v3": {"episodes": 1, "success": 0.0, "return": 0.0}}}]
    other = curves_of("run", 1, rows, [{"step": 9, "success": {"door-open-v3": 0.5}, "goals_per_task": 50}])
    runs = summaries([a_slot(0, an_evaluation(9, 0.0, 0.2)), other, a_slot(2, an_evaluation(9, 0.2, 0.4))])
    assert [run.run for run in runs] == ["run/0,2", "run/1"]
    run = a_run(tmp_path / "run", slots=5)
    alike = {"checkpoint_interval": 77, "threads": 2}
    sweep = [{"gamma": 0.9}, {"gamma": 0.95}, {"gamma": 0.9, **alike}, {"gamma": 0.95}, {"num_envs": 4}]
    for slot, fields in enumerate(sweep):
        asked = resolve(TrainingSection(preset="arm-ppo", num_workers=0, seed=slot, **fields))
        write_json(run / f"slots/{slot}/config.json", asked.model_dump(mode="json"))
    assert [one.run for one in summaries(find_curves(run))] == ["run/0,2", "run/1,3", "run/4"]
    for slot in range(5):
        (run / f"slots/{slot}/config.json").unlink()  # as in a mirror
    assert [one.run for one in summaries(find_curves(run))] == ["run"]


@pytest.mark.parametrize("names", [("one",), ("one", "two")])
def test_the_pictures_are_drawn_for_one_run_and_for_several(tmp_path, names):
    runs = summaries(find_curves(*(a_run(tmp_path / name, slots=3) for name in names)))
    for number, how in enumerate((draw_curves, draw_tasks)):
        out = tmp_path / "new folder" / f"{number}.png"
        how(runs, out, r"a title is no formula: $\x$")
        data = out.read_bytes()
        assert (data[:8], int.from_bytes(data[16:20], "big")) == (b"\x89PNG\r\n\x1a\n", 1200)
    assert "over seeds, resampled" in caption(runs)
    assert "not over other seeds" in caption(summaries(find_curves(tmp_path / "one/slots/0")))


def test_machines_get_what_the_pictures_show(tmp_path):
    [run] = json.loads(json.dumps(runs_as_json(summaries(find_curves(a_run(tmp_path / "run", slots=3))))))["runs"]
    assert (run["tasks"], run["intervals_over"]) == (sorted(TASKS), "seeds")
    low, high = wilson(0.4, 3 * 2 * 50)
    assert run["last"]["mean"] == {"value": pytest.approx(0.4), "low": pytest.approx(low), "high": pytest.approx(high)}
    assert run["last"]["tasks"]["reach-v3"]["slots"] == [0.4] * 3
    assert [len(slot["step"]) for slot in run["slots"]] == [30] * 3
    assert run["slots"][0]["tasks"]["reach-v3"]["success"][-1] == 1.0


def test_before_the_first_evaluation_no_column_tells_of_any(capsys):
    row = a_row(0, (1, 1, 1.0), (1, 0, 0.0))
    show_runs(summaries([curves_of("run", 0, [row], [])]), Console(file=io.StringIO()))
    head, run, _ = capsys.readouterr().out.splitlines()
    assert head.split("\t") == ["run", "slots", "steps", "training"]
    assert "-" not in run


def test_nothing_to_draw_is_one_sentence(tmp_path):
    with refused("run.none-there"):
        find_curves(tmp_path / "absent")
    (tmp_path / "mirror/state").mkdir(parents=True)
    with refused("run.mirror-empty"):
        find_curves(tmp_path / "mirror")
    with refused("run.no-metrics"):
        find_curves(a_run(tmp_path / "run", rows=0))
    runs = summaries(find_curves(a_run(tmp_path / "other")))
    with refused("plot.out-suffix"):
        draw_curves(runs, tmp_path / "curves.pdf", "title")
    (tmp_path / "file").write_text("")
    with refused("output.unwritable-file"):
        draw_curves(runs, tmp_path / "file" / "curves.png", "title")
    rows = a_run(tmp_path / "third", slots=1) / "slots/0/attempts/0/metrics.jsonl"
    rows.write_text(rows.read_text() + '{"step": 5, "to": 4000}\n')
    with refused("history.foreign"):
        find_curves(tmp_path / "third")


@pytest.mark.parametrize("given", [{"rows": 20}, {"adopted": 1}, {"mixed": 3}])
def test_a_group_is_one_sample_without_an_interval_over_its_slots(capsys, given):
    rates = [(0.1, 0.3), (0.9, 0.8), (0.2, 0.2), (0.8, 0.9)]

    def of_four(**more):
        row = a_row(0, (1, 1, 1.0), (1, 0, 0.0)) | more
        return summaries([curves_of("run", k, [row], [an_evaluation(9, *rate)]) for k, rate in enumerate(rates)])

    (apart,), (group,) = of_four(), of_four(group=given)
    assert (apart.about, apart.is_group, apart.has_band) == ("seeds", False, True)
    assert (group.about, group.is_group, group.has_band) == ("episodes", True, False)
    for words in ("mean", "iqm"):
        of_apart, of_group = (getattr(run.last, words)() for run in (apart, group))
        assert of_group.value == of_apart.value
        assert of_group.high - of_group.low < of_apart.high - of_apart.low  # of 200 episodes, not of four seeds
    show_runs([group], Console(file=io.StringIO()))
    assert "they are one sample" in capsys.readouterr().out
    assert [GROUPS in caption([run]) for run in (apart, group)] == [False, True]


@pytest.fixture
def drawn(monkeypatch):
    """Axes of the last picture by what is written beside them."""
    found = {}

    def keep(picture, out, caption):
        found.clear()
        found.update({axes.get_ylabel(): axes for axes in picture.axes})

    monkeypatch.setattr(plot, "save_picture", keep)
    return found


def marks(axes):
    return {tuple(point) for dots in axes.collections for point in np.asarray(dots.get_offsets()).tolist()}


def test_where_no_success_is_told_returns_are_shown_and_no_share(tmp_path, drawn, capsys):
    mine = [a_slot(slot, by_return(10, -2.0), by_return(20, -6.0), run="mine") for slot in range(3)]
    (run,) = found = summaries(mine)
    draw_curves(found, tmp_path / "curves.png", "mine")
    assert drawn.keys() == {"return of an episode"}
    returns = drawn["return of an episode"]
    assert marks(returns) >= {(10.0, -2.0), (20.0, -6.0)}
    returns.set_ylim(-2.1, -2.0)
    assert len({label.get_text() for label in returns.get_yticklabels()}) == len(returns.get_yticks())
    assert (run.best.mean_return, run.last.mean_return) == (-2.0, -6.0)
    show_runs(found, Console(emoji=False))
    assert "%" not in capsys.readouterr().out
    (told,) = json.loads(json.dumps(runs_as_json(found)))["runs"]
    assert (told["judged_by"], told["intervals_over"], told["mean_of_last_5"]) == ("return", None, -4.0)
    averaged = {"averaged": {"mean_success": 0.75, "success": {}}}
    draw_curves(
        summaries([*mine, a_slot(0, an_evaluation(20, 0.5, 0.5, **averaged), run="other")]), tmp_path / "a.png", ""
    )
    assert marks(drawn["success"]) == {(20.0, 0.5), (20.0, 0.75)}  # with its moving average
