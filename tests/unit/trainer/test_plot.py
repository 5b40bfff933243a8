from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from long_history import with_its_peak, write_long_history
from rich.console import Console

pytest.importorskip("matplotlib")

from refused import refused

from anchorleg.files import write_json
from anchorleg.words import wilson
from syncd import store
from trainer.config.section import TrainingSection, resolve
from trainer.evaluation.protocol import iqm
from trainer.showing.certainty import MIN_SEEDS, band, iqm_of, mean_of, share_of
from trainer.showing.frame import widths
from trainer.showing.learning import EPISODES_A_POINT, aligned, curves_of, find_curves, mean_over, window_rows
from trainer.showing.plot import GROUPS, caption, draw_curves
from trainer.showing.summary import summaries
from trainer.showing.tables import runs_as_json, show_runs, span
from trainer.showing.taskplots import draw_bars, draw_tasks

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


def an_evaluation(step, *rates, goals=50):
    return {"step": step, "success": dict(zip(TASKS, rates, strict=True)), "goals_per_task": goals}


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


@given(st.integers(1, 400), st.integers(1, 400).map(lambda eighths: eighths / 8))  # their sums are exact
def test_a_window_has_twenty_episodes_a_task_or_is_a_fifth_of_the_run(rows, a_row_has):
    window = window_rows(np.full((rows, 3), a_row_has))
    assert 1 <= window <= max(1, rows // 5)
    assert window * a_row_has >= EPISODES_A_POINT or window == max(1, rows // 5)
    assert (window - 1) * a_row_has < EPISODES_A_POINT


def test_slots_together_end_where_the_shortest_does():
    long = curves_of("run", 0, [a_row(n, (1, 1, 10.0), (1, 0, 0.0)) for n in range(10)], [])
    short = curves_of("run", 1, [a_row(n, (1, 0, 30.0), (1, 0, 0.0)) for n in range(4)], [])
    step, values = aligned([long, short], "success")
    assert (step[0], step[-1]) == (100, 400)
    assert values.shape == (2, 4, 2)
    assert np.allclose(mean_over(values, (0, 2)), 0.25)
    late = curves_of("run", 3, [a_row(n, (1, 0, 30.0), (int(n > 1), 1, 0.0)) for n in range(4)], [])
    began = aligned([long, late], "success")[1][1, :, 0]
    assert np.isnan(began).tolist() == [True, True, False, False]  # nothing was played there
    unseen = curves_of("run", 2, [a_row(0, (0, 0, 0.0))], [])
    assert aligned([long, unseen], "success")[0].size == 0


def test_with_three_seeds_the_interval_speaks_of_seeds_and_not_of_episodes():
    agreed = np.full((3, 4), 0.5)
    for of, episodes in ((mean_of, 60), (iqm_of, 30)):  # a few that happen to agree are no certainty
        assert (of(agreed, 5).low, of(agreed, 5).high) == wilson(0.5, episodes)
    assert (iqm_of(100 * agreed, None).low, iqm_of(100 * agreed, None).high) == (50, 50)  # returns are no shares
    # Two tasks, on each of which one seed of three fails: the mean of six draws of 2/3. None knows the others.
    found = mean_of(np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), 50)
    assert found.value == pytest.approx(2 / 3)
    # P(at most one success of six) = 0.018 < 2.5 % < P(at most two) = 0.1
    assert (found.low, found.high) == (pytest.approx(2 / 6), 1.0)


def test_fewer_seeds_give_the_uncertainty_of_their_episodes():
    rates = np.full((1, 2), 0.5)
    many, few, all_solved = mean_of(rates, 50), mean_of(rates, 5), mean_of(np.ones((1, 2)), 5)
    assert (many.low, many.high) == wilson(0.5, 100)
    assert (few.low, few.high) == wilson(0.5, 10)
    assert (all_solved.value, all_solved.high) == (1.0, 1.0)
    assert all_solved.low < 0.9  # five of five is no certainty


def test_the_iqm_is_over_slots_and_tasks_together():
    rates = np.array([[0.0, 0.2, 0.4, 0.6], [0.2, 0.4, 0.6, 1.0], [0.0, 0.2, 0.8, 1.0]])
    for slots in (1, MIN_SEEDS):
        found = iqm_of(rates[:slots], 50)
        assert found.value == pytest.approx(iqm(rates[:slots].ravel()))
        assert found.low < found.value < found.high


def test_a_tasks_interval_is_wilsons():
    found = share_of(np.array([1.0]), 10)
    assert (found.low, found.high) == (pytest.approx(0.7225, abs=1e-4), 1.0)  # n / (n + z^2)
    half = share_of(np.array([0.4, 0.6]), 50)
    assert (half.low, half.high) == (pytest.approx(0.4038, abs=1e-4), pytest.approx(0.5962, abs=1e-4))
    apart = share_of(np.array([0.0, 0.9, 0.9]), 50)  # three seeds know better than 150 episodes
    assert (apart.low, apart.high) == (0.0, pytest.approx(0.9))


def test_a_band_holds_the_mean_and_is_as_wide_as_seeds_differ():
    values = np.stack([np.full((5, 3), level) for level in (0.2, 0.5, 0.8)])
    values[:, 3:] = 0.5
    low, high = band(values)
    assert low[0] < 0.4
    assert high[0] > 0.6
    assert np.array_equal(low[3:], [0.5, 0.5])
    assert np.array_equal(high[3:], [0.5, 0.5])


def test_a_run_is_judged_where_all_its_slots_were():
    slots = [
        a_slot(0, an_evaluation(100, 0.2, 0.4), an_evaluation(200, 1.0, 0.8), an_evaluation(300, 0.0, 0.0)),
        a_slot(1, an_evaluation(100, 0.4, 0.6), an_evaluation(200, 0.4, 0.2)),
    ]
    [run] = summaries(slots)
    assert [one.steps for one in run.history] == [(100, 100), (200, 200)]
    assert run.last.mean().value == pytest.approx(0.6)
    assert run.best.steps == (200, 100)  # each slot's own
    assert run.best.mean().value == pytest.approx((0.9 + 0.5) / 2)
    assert run.final == pytest.approx(np.mean([np.mean([0.3, 0.9, 0.0]), np.mean([0.5, 0.3])]))
    assert run.last.task("reach-v3").value == pytest.approx(0.7)
    assert run.about == "episodes"
    [apart] = summaries([a_slot(0, an_evaluation(100, 0.2, 0.2)), a_slot(1, an_evaluation(150, 0.4, 0.4))])
    assert (apart.history, apart.last.steps) == ((), (100, 150))


def a_run(folder, slots=2, rows=30):
    for slot in range(slots):
        attempt = folder / "slots" / str(slot) / "attempts" / "0"
        attempt.mkdir(parents=True)
        write_json(attempt / "parent.json", {"attempt": None, "step": 0, "checkpoint": None})
        lines = [a_row(n, (5, min(5, n // 5), 100.0 * n), (5, 0, 0.0)) for n in range(rows)]
        (attempt / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
        (attempt / "evaluations.jsonl").write_text(json.dumps(an_evaluation(rows * 100, 0.4, 0.4)) + "\n")
    return folder


def test_a_mirror_shows_the_same_curves_as_the_run_itself(tmp_path):
    run = a_run(tmp_path / "run", slots=1)
    place = store.Shared(tmp_path / "mirror").slot("run-0123abcd", 0)
    attempt = run / "slots/0/attempts/0"
    for name in ("metrics", "evaluations"):
        store.write_metrics(place, name, [json.loads(line) for line in (attempt / f"{name}.jsonl").open()])
    place.manifests.mkdir()
    own, mirrored = find_curves(run), find_curves(tmp_path / "mirror")
    for found in (mirrored, find_curves(run / "slots/0"), find_curves(place.path)):
        for name in ("step", "success", "returns"):
            assert np.array_equal(getattr(own[0], name), getattr(found[0], name))
        assert found[0].evaluations == own[0].evaluations
    assert [curves.run for curves in own + mirrored + find_curves(place.path)] == ["run", *["run-0123abcd"] * 2]
    assert len(find_curves(tmp_path / "mirror", place.path)) == 1


def test_a_folder_counts_once_and_runs_of_one_name_are_told_apart(tmp_path):
    one, other = a_run(tmp_path / "a/run"), a_run(tmp_path / "b/run", slots=1)
    assert [curves.slot for curves in find_curves(one, one / "slots/1", one)] == [0, 1]
    assert [(curves.run, curves.slot) for curves in find_curves(one, other)] == [
        (str(one), 0),
        (str(one), 1),
        (str(other), 0),
    ]


def test_slots_of_other_tasks_are_no_seeds_of_one_training():
    rows = [{"from": 0, "to": 9, "tasks": {"door-open-v3": {"episodes": 1, "success": 0.0, "return": 0.0}}}]
    judged = {"step": 9, "success": {"door-open-v3": 0.5}, "goals_per_task": 50}
    other = curves_of("run", 1, rows, [judged])
    runs = summaries([a_slot(0, an_evaluation(9, 0.0, 0.2)), other, a_slot(2, an_evaluation(9, 0.2, 0.4))])
    assert [(run.run, run.tasks) for run in runs] == [("run/0,2", tuple(sorted(TASKS))), ("run/1", ("door-open-v3",))]
    assert [run.last.mean().value for run in runs] == pytest.approx([0.2, 0.5])


def test_slots_with_other_settings_are_no_seeds_of_one_training(tmp_path):
    run = a_run(tmp_path / "run", slots=5)
    alike = {"checkpoint_interval": 77, "threads": 2}
    sweep = [{"gamma": 0.9}, {"gamma": 0.95}, {"gamma": 0.9, **alike}, {"gamma": 0.95}, {"num_envs": 4}]
    for slot, fields in enumerate(sweep):
        asked = resolve(TrainingSection(preset="arm-ppo", num_workers=0, seed=slot, **fields))
        write_json(run / f"slots/{slot}/config.json", asked.model_dump(mode="json"))
    assert [one.run for one in summaries(find_curves(run))] == ["run/0,2", "run/1,3", "run/4"]
    write_json(run / "slots/4/config.json", {"of_another_version": 1})
    assert [one.run for one in summaries(find_curves(run))] == ["run/0,2", "run/1,3", "run/4"]
    for slot in range(5):
        (run / f"slots/{slot}/config.json").unlink()  # as in a mirror
    assert [one.run for one in summaries(find_curves(run))] == ["run"]


def test_the_moving_average_is_marked_beside_what_was_trained(tmp_path):
    beside = {"averaged": {"mean_success": 0.75, "success": {}}}
    runs = summaries([a_slot(0, an_evaluation(50, 0.2, 0.4), an_evaluation(100, 0.5, 0.5) | beside)])
    assert [one.averaged for one in runs[0].slots[0].evaluations] == [None, 0.75]
    draw_curves(runs, tmp_path / "curves.png", "run")
    assert "Diamonds: the moving average" in caption(runs)
    assert "Diamonds" not in caption(summaries([a_slot(0, an_evaluation(50, 0.2, 0.4))]))


@pytest.mark.parametrize("name", ["metrics", "evaluations"])
def test_a_row_that_is_no_trainings_is_one_sentence(tmp_path, name):
    path = a_run(tmp_path / "run", slots=1) / f"slots/0/attempts/0/{name}.jsonl"
    path.write_text(path.read_text() + '{"step": 5, "to": 4000}\n')
    with refused("history.foreign"):
        find_curves(tmp_path / "run")


def size_of(png):
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


@pytest.mark.parametrize("names", [("one",), ("one", "two")])
def test_the_pictures_are_drawn_for_one_run_and_for_several(tmp_path, names):
    runs = summaries(find_curves(*(a_run(tmp_path / name, slots=3) for name in names)))
    for number, how in enumerate((draw_curves, draw_tasks, draw_bars)):
        out = tmp_path / "new folder" / f"{number}.png"
        how(runs, out, r"a title is no formula: $\x$")
        width, height = size_of(out)
        assert width == 1200
        assert 300 <= height <= 800
    words = caption(runs)
    assert "50 goals a task" in words
    assert "400 steps" in words
    assert "over seeds, resampled" in words
    assert "nothing of other seeds" in caption(summaries(find_curves(tmp_path / "one/slots/0")))


def test_a_slot_with_a_single_row_and_no_episode_is_drawn_and_told_too(tmp_path):
    runs = summaries([curves_of("run", 0, [a_row(0, (0, 0, 0.0))], [])])
    draw_curves(runs, tmp_path / "curves.svg", "title")
    assert (tmp_path / "curves.svg").read_text().lstrip().startswith("<?xml")
    [told] = runs_as_json(runs)["runs"]
    assert (told["last"], told["slots"][0]["success"]) == (None, [None])


def test_the_tasks_of_two_runs_are_drawn_before_any_episode_has_ended(tmp_path):
    young = [a_row(0, (0, 0, 0.0), (0, 0, 0.0))]
    runs = summaries([curves_of(run, slot, young, []) for run in ("one", "two") for slot in (0, 1)])
    draw_tasks(runs, tmp_path / "tasks.png", "title")
    assert size_of(tmp_path / "tasks.png")[0] == 1200


def test_in_a_narrow_terminal_words_give_way_and_no_number_loses_a_digit():
    names, rows = ["run", "steps", "evaluation"], [["a-run-with-a-long-name", "2,000,000", "74 % (66 to 82)"]]
    assert widths(names, rows, 80) == [22, 9, 15]
    assert widths(names, rows, 54) == [22, 9, 13]
    assert widths(names, rows, 50) == [21, 9, 10]
    assert widths(names, rows, 39) == [10, 9, 10]
    assert widths(names, rows, 20) == [10, 9, 10]  # as far as it goes


def test_a_span_is_two_numbers_or_the_one_that_all_are():
    assert (span([5000, 5, 70]), span(iter([5, 5]))) == ("5 to 5,000", "5")


def test_machines_get_what_the_pictures_show(tmp_path):
    [run] = json.loads(json.dumps(runs_as_json(summaries(find_curves(a_run(tmp_path / "run", slots=3))))))["runs"]
    assert (run["tasks"], run["intervals_over"]) == (sorted(TASKS), "seeds")
    low, high = wilson(0.4, 3 * 2 * 50)
    assert run["last"]["mean"] == {"value": pytest.approx(0.4), "low": pytest.approx(low), "high": pytest.approx(high)}
    assert run["last"]["tasks"]["reach-v3"]["slots"] == [0.4] * 3
    assert [len(slot["step"]) for slot in run["slots"]] == [30] * 3
    assert run["slots"][0]["tasks"]["reach-v3"]["success"][-1] == 1.0


def test_nothing_to_draw_is_one_sentence(tmp_path):
    with refused("run.none-there"):
        find_curves(tmp_path / "absent")
    with refused("run.no-metrics"):
        find_curves(a_run(tmp_path / "run", rows=0))
    runs = summaries(find_curves(a_run(tmp_path / "other")))
    with refused("plot.out-suffix"):
        draw_curves(runs, tmp_path / "curves.pdf", "title")
    (tmp_path / "file").write_text("")
    with refused("output.unwritable-file"):
        draw_curves(runs, tmp_path / "file" / "curves.png", "title")


class TestAGroup:
    def of_four(self, **more):
        rates = [(0.1, 0.3), (0.9, 0.8), (0.2, 0.2), (0.8, 0.9)]
        row = a_row(0, (1, 1, 1.0), (1, 0, 0.0)) | more
        return summaries([curves_of("run", k, [row], [an_evaluation(9, *rate)]) for k, rate in enumerate(rates)])

    def test_is_one_sample_without_an_interval_over_its_slots(self, capsys):
        (apart,), (group,) = self.of_four(), self.of_four(group={"rows": 20})
        assert (apart.about, apart.is_group, apart.has_band) == ("seeds", False, True)
        assert (group.about, group.is_group, group.has_band) == ("episodes", True, False)
        for words in ("mean", "iqm"):
            of_apart, of_group = (getattr(run.last, words)() for run in (apart, group))
            assert of_group.value == of_apart.value
            assert of_group.high - of_group.low < of_apart.high - of_apart.low  # of 200 episodes, not of four seeds
        show_runs([group], Console(file=io.StringIO()))
        assert "they are one sample: no interval over them" in capsys.readouterr().out
        assert GROUPS in caption([group])
        assert "bands" not in caption([group])
        assert GROUPS not in caption([apart])

    @pytest.mark.parametrize("given", [{"adopted": 1}, {"mixed": 3}])
    def test_is_one_sample_too_where_it_shares_no_rows(self, given):
        (group,) = self.of_four(group=given)
        assert (group.about, group.is_group, group.has_band) == ("episodes", True, False)
        assert GROUPS in caption([group])

    def test_is_one_sample_where_one_slot_has_got_nothing_yet(self):
        one = curves_of("run", 0, [a_row(0, (1, 1, 1.0)) | {"group": {"rows": 1}}], [])
        other = curves_of("run", 1, [a_row(0, (1, 1, 1.0))], [])
        assert summaries([one, other])[0].is_group
        assert not summaries([one])[0].is_group


@pytest.mark.long
def test_long_histories_become_curves_without_ever_being_in_memory(tmp_path):
    written = 0
    for slot in range(3):
        attempt = tmp_path / "run/slots" / str(slot) / "attempts/0"
        attempt.mkdir(parents=True)
        write_json(attempt / "parent.json", {"attempt": None, "step": 0, "checkpoint": None})
        written = write_long_history(attempt / "metrics.jsonl")
    found, peak = with_its_peak(lambda: find_curves(tmp_path / "run"))
    assert [(curves.step[-1], curves.mean("returns")[-1]) for curves in found] == [(20_000, 1.5)] * 3
    assert peak < written / 4


def test_a_task_that_comes_late_and_a_row_without_one_have_no_episodes_there():
    rows = [a_row(0, (2, 1, 4.0)), a_row(1, (1, 1, 3.0), (4, 1, 8.0)), a_row(2)]
    curves = curves_of("run", 0, rows, [])
    assert curves.tasks == ("push-v3", "reach-v3")
    assert np.array_equal(curves.raw_success, [[np.nan, 0.5], [0.25, 1.0], [np.nan, np.nan]], equal_nan=True)
    assert np.array_equal(curves.raw_returns, [[np.nan, 2.0], [2.0, 3.0], [np.nan, np.nan]], equal_nan=True)
    assert curves_of("run", 0, [a_row(0)], []).success.shape == (1, 0)
