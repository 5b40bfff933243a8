"""The benches of an hour and of a GPU, as far as they can be told without either."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch")

from daemons import WORK_S

from trainer.config.section import TrainingSection, resolve
from trainer.config.tasknames import MT10
from trainer.errors import NotFiniteError

pytestmark = pytest.mark.trainer
BENCH = Path(__file__).resolve().parents[3] / "bench"


@pytest.fixture
def script(monkeypatch, tmp_path):
    """Imports a benchmark, whose figures go to a folder of the test."""

    def imported(name):
        monkeypatch.setattr(sys, "argv", [f"{name}.py"])
        monkeypatch.syspath_prepend(str(BENCH))
        found = importlib.import_module(name)
        monkeypatch.setattr(found.figures, "OWN", tmp_path / "own")
        monkeypatch.setattr(found.figures, "COMMITTED", tmp_path / "committed")
        monkeypatch.setattr(found.figures, "FOLDER", tmp_path / "bench")
        return found

    return imported


def row(side, name, rung, success, total=0):
    return [side, name, str(rung), "3", "0", "1", "1", str(success), str(total)]


FOUR = {(side, name): {} for side in ("ours", "stable-baselines3") for name in "abcd"}


def test_a_search_keeps_the_better_half_of_each_side_and_goes_on_where_it_was_killed(script, monkeypatch):
    search = script("hour_search")
    monkeypatch.setattr(search, "CANDIDATES", FOUR)
    made = []
    success = {("ours", "a"): 0.1, ("ours", "b"): 0.3, ("ours", "c"): 0.3, ("ours", "d"): 0.2}
    order = []
    while (following := search.due(made)) is not None:
        side, name, rung = following
        order.append(following)
        total = 5 if name == "c" else 0  # of equals the higher return
        made.append(row(side, name, rung, success.get((side, name), 0.0), total))
    ours = [(name, rung) for side, name, rung in order if side == "ours"]
    assert ours == [*((name, 0) for name in "abcd"), ("c", 1), ("b", 1), ("c", 2), ("c", 3)]
    assert len(order) == 2 * len(ours)
    assert search.due(made[:3]) == ("ours", "d", 0)
    assert search.due([one for one in made if one[0] == "ours"]) == ("stable-baselines3", "a", 0)


@pytest.mark.parametrize(("success", "last"), [((0.1, 0.30, 0.31, 0.28), ["c", "b"]), ((0.1, 0.3, 0.4, 0.37), [])])
def test_in_the_last_rung_are_those_that_came_as_far_as_the_best(script, monkeypatch, success, last):
    search = script("hour_search")
    monkeypatch.setattr(search, "RUNGS", 2)
    monkeypatch.setattr(search, "LAST", 1)
    made = [row("ours", name, 0, rate) for name, rate in zip("abcd", success, strict=True)]
    monkeypatch.setattr(search, "CANDIDATES", {("ours", name): {} for name in "abcd"})
    assert search.survivors(made, "ours", 1) == last
    assert search.due(made) == (("ours", last[0], 1) if last else None)
    search.figures.save("hour_search", search.SEARCHED, made)
    begun = []

    def submit(side, name, rung, seconds):
        begun.append((name, seconds, len(search.searched()) - len(made)))
        done = Future()
        done.set_result((row(side, name, rung, 0.5), seconds))
        return done

    assert search.searching(1_000.0, 25, 2, submit)
    assert begun == [(name, 3_600.0, place) for place, name in enumerate(last)]  # one after another


def test_who_begins_at_the_last_rung_runs_there_and_whose_hours_are_known_does_not(script, monkeypatch):
    search = script("hour_search")
    monkeypatch.setattr(search, "RUNGS", 2)
    monkeypatch.setattr(search, "LAST", 1)
    monkeypatch.setattr(search, "CANDIDATES", {("ours", name): {} for name in "abcx"})
    monkeypatch.setattr(search, "ENTERS", {("ours", "x"): 1})
    made = [row("ours", name, 0, rate) for name, rate in zip("abc", (0.1, 0.30, 0.31), strict=True)]
    assert search.survivors(made, "ours", 1) == ["x", "c", "b"]
    monkeypatch.setattr(search, "KNOWN", {("ours", "c")})
    assert search.survivors(made, "ours", 1) == ["x", "b"]
    monkeypatch.setattr(search, "KNOWN", {("ours", "c"), ("ours", "b")})
    assert search.due(made) == ("ours", "x", 1)
    assert search.due([*made, row("ours", "x", 1, 0.2)]) is None


def test_a_candidate_of_a_later_rung_is_first_trained_there_and_then_kept_or_not_as_all(script, monkeypatch):
    search = script("hour_search")
    monkeypatch.setattr(search, "CANDIDATES", {("ours", name): {} for name in "abcdxy"})
    monkeypatch.setattr(search, "ENTERS", {("ours", "x"): 1, ("ours", "y"): 1})
    made, order = [], []
    success = {"a": 0.1, "b": 0.5, "c": 0.4, "d": 0.2, "x": 0.3, "y": 0.6}
    while (following := search.due(made)) is not None:
        side, name, rung = following
        order.append((name, rung))
        made.append(row(side, name, rung, success[name]))
    assert order == [
        ("a", 0),
        ("b", 0),
        ("c", 0),
        ("d", 0),
        *((name, 1) for name in "xybc"),
        ("y", 2),
        ("b", 2),
        ("y", 3),
    ]


def test_a_run_that_does_not_fit_into_the_budget_is_not_begun(script, monkeypatch, capsys):
    search = script("hour_search")
    monkeypatch.setattr(search, "CANDIDATES", {key: values for key, values in FOUR.items() if key[0] == "ours"})
    begun = []

    def submit(side, name, rung, seconds):
        begun.append(name)
        done = Future()
        done.set_result((row(side, name, rung, 0.5), seconds + 1))
        return done

    assert not search.searching(1.0, 25, 2, submit)
    assert begun == ["a", "b"]
    assert "the budget is spent; next: ours, c" in capsys.readouterr().out
    assert not search.searching(1.0, 25, 1, submit)
    assert begun == ["a", "b", "c", "d"]
    assert search.searched()[-1] == row("ours", "d", 0, 0.5)
    assert search.searching(100.0, 25, 2, submit)


def test_runs_at_a_time_are_of_one_rung_and_each_is_made_once(script, monkeypatch):
    search = script("hour_search")
    monkeypatch.setattr(search, "CANDIDATES", FOUR)
    begun = []

    def run(side, name, rung):
        return row(side, name, rung, 0.5, ord(name)), 1.0

    def submit(side, name, rung, _seconds):
        below = {each[1] for each in search.searched() if (each[0], each[2]) == (side, str(rung - 1))}
        assert rung == 0 or len(below) == max(1, 4 >> (rung - 1)), "a rung began before the one below it had ended"
        begun.append((side, name, rung))
        return pool.submit(run, side, name, rung)

    with ThreadPoolExecutor(3) as pool:
        assert search.searching(100.0, 25, 3, submit)
    assert len(begun) == len(set(begun)) == 2 * (4 + 2 + 1 + 1)


def test_a_run_of_the_search_is_trained_by_its_cpu_time_and_played(script, monkeypatch):
    search = script("hour_search")
    asked = []
    found = SimpleNamespace(mean_success=0.5, returns={"x": 10.0, "y": 20.0})
    run = SimpleNamespace(act=None, more=None, made=lambda: (1000, 100), close=lambda: None)
    monkeypatch.setattr(search, "begin", lambda *which: asked.append(which) or run)
    monkeypatch.setattr(search, "trained", lambda _run, seconds, clock: asked.append((seconds, clock)))
    monkeypatch.setattr(search, "played", lambda _act, _goals, _seed: found)
    line, took = search.tried("ours", "d", 1, 25)
    assert line == ["ours", "d", "1", "0.416667", "0", "1000", "100", "0.500", "15"]
    assert took >= 0
    monkeypatch.setattr(search, "quicker", lambda _more: 20.0)
    search.tried("ours", "d", search.LAST, 3600)
    line, _ = search.tried(search.THEIRS, "sac", search.LAST, 3600)
    assert line[:4] == [search.THEIRS, "sac", str(search.LAST), "60"]
    assert asked == [
        ("ours", "d", 0),
        (25, search.time.process_time),
        ("ours", "d", 0),
        (3600, search.time.monotonic),
        (search.THEIRS, "sac", 0),
        (3580.0, search.time.monotonic),
    ]


def test_every_candidate_is_a_training_of_mt10_and_one_of_them_is_the_presets(script):
    search = script("hour_search")
    trainings = {
        name: search.training_of(values, 3) for (side, name), values in search.CANDIDATES.items() if side == search.OURS
    }
    assert {each.env.tasks for each in trainings.values()} == {MT10}
    assert {each.seed for each in trainings.values()} == {3}
    assert len({json.dumps(each.model_dump(mode="json")) for each in trainings.values()}) == len(trainings)
    laptop = resolve(TrainingSection(preset="laptop"))
    chosen = trainings["mtsac large batch warm"]
    assert (chosen.algorithm, chosen.network, chosen.num_envs) == (laptop.algorithm, laptop.network, laptop.num_envs)


def test_every_candidate_for_a_gpu_is_a_training_of_mt10_by_settings_of_its_own(script):
    search = script("gpu_search")
    trainings = {name: search.training_of(search.values_of(name, 3, 2, 60.0, False)) for name in search.CANDIDATES}
    assert {(each.env.tasks, each.seed, each.device) for each in trainings.values()} == {(MT10, 3, "auto")}
    learned = {each.model_dump_json(include={"algorithm", "network"}) for each in trainings.values()}
    assert len(learned) == len(trainings)


def test_claims_are_judged_by_the_seeds_that_both_sides_have_from_one_machine(script):
    hour = script("hour")
    lines = []
    for seed in range(3):
        for side, points in (
            ("ours", [(1000, 0.2 + seed / 100), (5000, 0.6 + seed / 100)]),
            ("stable-baselines3", [(1000, 0.3 - seed / 100)]),
        ):
            lines += [[side, str(seed), "amd", "s", "60", str(step), *["0"] * 10, str(mean)] for step, mean in points]
    other = [["ours", "7", "amd", "s", "60", "1", *["0"] * 10, "0"]]
    other += [
        [side, "8", where, "s", "60", "1", *["0"] * 10, "0"]
        for side, where in (("ours", "amd"), ("stable-baselines3", "intel"))
    ]
    found = {name: verdict for name, verdict, *_ in hour.summary([*lines, *other])}
    assert found["seeds of both"] == "3"
    assert found["their success after the hour"] == "0.610"
    assert found["1: at least 0.5 (all of ours)"] == "refuted"  # 0.366: with seeds 7 and 8, which nobody else has
    assert found["2: more in the same hour"] == "shown"
    assert found["3: not worse by 0.05 at equal steps"] == "not shown"  # 0.08 less at 1,000 steps
    few = [[*row[:2]] for row in hour.summary(lines[:6])]  # two seeds of three
    assert few[2:5] == [
        ["1: at least 0.5 (all of ours)", "shown"],
        ["2: more in the same hour", "open"],
        ["3: not worse by 0.05 at equal steps", "open"],
    ]
    assert hour.summary(lines)[5:] == [["steps compared in claim 3", "1,000", "1,000", ""]]
    late = [[*row[:5], "1001", *row[6:]] if row[0] == "ours" and row[5] == "1000" else row for row in lines]
    verdicts = {name: verdict for name, verdict, *_ in hour.summary(late)}
    assert verdicts["3: not worse by 0.05 at equal steps"] == "not told"  # of ours nothing is known so early


def test_a_candidate_that_diverges_is_the_last_of_all(script, monkeypatch):
    search = script("hour_search")
    run = SimpleNamespace(act=None, made=lambda: (1000, 100), close=lambda: None)

    def diverges(*_):
        raise NotFiniteError("a loss is not finite", what=["q"])

    monkeypatch.setattr(search, "begin", lambda *_: run)
    monkeypatch.setattr(search, "trained", diverges)
    assert search.tried("ours", "d", 0, 25)[0][-2:] == ["0.000", "-1000000000"]


def test_what_is_chosen_by_hand_has_its_hour_too(script, monkeypatch):
    search = script("hour_search")
    monkeypatch.setattr(search, "CANDIDATES", {key: values for key, values in FOUR.items() if key[0] == "ours"})
    monkeypatch.setattr(search, "KEPT", {("ours", "d")})
    rows = [row("ours", name, 0, rate) for name, rate in (("a", 0.5), ("b", 0.4), ("c", 0.2), ("d", 0.1))]
    rows += [row("ours", "a", 1, 0.5), row("ours", "b", 1, 0.4), row("ours", "a", 2, 0.5), row("ours", "a", 3, 0.5)]
    assert search.survivors(rows, "ours", search.LAST) == ["a", "d"]


def runs_made(hour, monkeypatch):
    """(side, seed) of each run from now on; each has a success of 0.5."""
    made = []

    def make(seed, _minutes, side):
        made.append((side, seed))
        return [hour.line(side, seed, 60.0, 1, dict.fromkeys(MT10, 0.5))]

    monkeypatch.setattr(hour, "by_relay", lambda seed, minutes, _name: make(seed, minutes, "ours"))
    monkeypatch.setattr(hour, "by_sb3", make)
    monkeypatch.setattr(hour, "films", lambda *_: None)
    return made


def test_runs_of_other_settings_are_made_again(script, monkeypatch):
    hour = script("hour")
    monkeypatch.setattr(hour, "due", lambda *_args, **_more: None)
    made = runs_made(hour, monkeypatch)
    old = hour.line("ours", hour.FIRST_SEED, 60.0, 1, dict.fromkeys(MT10, 0.9))
    old[3] = "00000000"
    hour.figures.save(
        "hour", hour.HEAD, [old, hour.line("stable-baselines3", hour.FIRST_SEED, 60.0, 1, dict.fromkeys(MT10, 0.4))]
    )
    hour.hour(1, hour.MINUTES)
    assert made == [("ours", hour.FIRST_SEED)]
    assert [each[-1] for each in hour.figures.read(hour.figures.newest("hour"))[1:]] == ["0.400", "0.500"]


def test_runs_of_other_settings_stay_until_they_are_made_again(script, monkeypatch):
    hour = script("hour")
    monkeypatch.setattr(hour, "due", lambda *_args, **_more: None)
    runs_made(hour, monkeypatch)
    old = hour.line("ours", hour.FIRST_SEED, 60.0, 1, dict.fromkeys(MT10, 0.9))
    old[3] = "00000000"
    hour.figures.save("hour", hour.HEAD, [old])
    hour.hour(1, hour.MINUTES, (hour.HELPED,))
    assert [each[-1] for each in hour.figures.read(hour.figures.newest("hour"))[1:]] == ["0.900", "0.500"]
    assert hour.current([old]) == []  # and does not count


def test_a_machine_that_cannot_draw_or_draws_slowly_loses_no_hour_and_what_is_missing_is_drawn_later(
    script, monkeypatch
):
    hour = script("hour")
    monkeypatch.setattr(hour, "due", lambda *_args, **_more: None)
    draws = hour.films
    runs_made(hour, monkeypatch)
    monkeypatch.setattr(hour, "films", draws)
    said = []

    folder = hour.figures.OWN / f"hour-{hour.FIRST_SEED}"
    (folder / "run").mkdir(parents=True)

    def cannot(command, **_):
        said.append((command[3], len(hour.figures.read(hour.figures.newest("hour")))))
        if len(said) % 2:
            raise subprocess.TimeoutExpired(command, 900)
        return subprocess.CompletedProcess(command, 2)

    monkeypatch.setattr(hour.subprocess, "run", cannot)
    hour.hour(2, hour.MINUTES, ("ours",))
    assert said == [("play", 2)] * len(MT10)  # of the first seed alone; its row is there before
    (folder / f"{MT10[0]}.mp4").touch()
    hour.hour(2, hour.MINUTES, ("ours",))
    assert len(said) == 2 * len(MT10) - 1
    shutil.rmtree(folder / "run")  # where the hour was another clone's
    hour.hour(2, hour.MINUTES, ("ours",))
    assert len(said) == 2 * len(MT10) - 1


def test_what_the_library_of_products_brings_is_told_beside_the_claims(script, monkeypatch):
    hour = script("hour")
    monkeypatch.setattr(hour, "due", lambda *_args, **_more: None)
    made = runs_made(hour, monkeypatch)
    hour.hour(1, hour.MINUTES)
    _, *before = hour.figures.read(hour.figures.newest("hour_summary"))
    hour.hour(1, hour.MINUTES, (hour.HELPED,))
    assert [side for side, _ in made] == ["ours", "stable-baselines3", hour.HELPED]
    _, *rows = hour.figures.read(hour.figures.newest("hour_summary"))
    assert rows == [*before, [f"{hour.HELPED}: seeds {hour.FIRST_SEED}", "0.500", "0.500", ""]]


def test_the_side_with_our_library_has_it(script, monkeypatch):
    hour = script("hour")
    chosen = []
    run = SimpleNamespace(act=None, more=None, made=lambda: (1000, 100), close=lambda: None)
    monkeypatch.setattr(hour, "begin", lambda *_: run)
    monkeypatch.setattr(hour, "best", lambda _side: "sac")
    monkeypatch.setattr(hour, "quicker", lambda _more: None)
    monkeypatch.setattr(hour, "trained", lambda *_: None)
    monkeypatch.setattr(hour, "played", lambda *_: SimpleNamespace(success=dict.fromkeys(MT10, 0.5)))
    monkeypatch.setattr(hour, "choose_products", lambda width: chosen.append(width) or ("onednn", None))
    hour.by_sb3(100, 60.0)
    assert chosen == []
    assert {each[0] for each in hour.by_sb3(100, 60.0, hour.HELPED)} == {hour.HELPED}
    assert chosen == [256]
    monkeypatch.setattr(hour, "choose_products", lambda _width: ("plain", None))
    with pytest.raises(SystemExit, match="would tell nothing new"):
        hour.by_sb3(100, 60.0, hour.HELPED)


def test_an_hour_made_again_stands_beside_the_published_one(script, monkeypatch):
    hour = script("hour")
    monkeypatch.setattr(hour, "due", lambda *_args, **_more: None)
    runs_made(hour, monkeypatch)
    hour.figures.COMMITTED.mkdir()
    published = [hour.line("ours", 100, 60.0, step, dict.fromkeys(MT10, rate)) for step, rate in ((1, 0.2), (2, 0.53))]
    (hour.figures.COMMITTED / "hour.csv").write_text("\n".join(",".join(f'"{cell}"' for cell in each) for each in
                                                               [hour.HEAD, *published]))  # fmt: skip
    folders = []
    relay = hour.by_relay
    monkeypatch.setattr(hour, "by_relay", lambda *told: folders.append(told[2]) or relay(*told))
    for _ in range(2):
        hour.again(100, hour.MINUTES)
    assert set(folders) == {"hour-again"}  # the published run's folder stays as it is
    hour.again(101, hour.MINUTES)
    _, *rows = hour.figures.read(hour.figures.newest("hour_again"))
    assert [[each[0], *each[2:]] for each in rows] == [
        ["100", "end", "2", "0.530", "1", "0.500", "-0.030"],
        ["101", "end", "", "", "1", "0.500", ""],
    ]
    curves = [("10", "0.1"), ("20", "0.2"), ("25", "0.3")], [("10", "0.1"), ("20", "0.1"), ("30", "0.4"), ("33", "0.5")]
    assert hour.compared(*curves) == [
        ["evaluation", "10", "0.1", "10", "0.1", "+0.000"],
        ["evaluation", "20", "0.2", "20", "0.1", "-0.100"],
        ["end", "25", "0.3", "33", "0.5", "+0.200"],
    ]


def test_an_hour_that_was_interrupted_has_no_film(script, monkeypatch, tmp_path):
    pictures = script("hour_pictures")
    monkeypatch.setattr(pictures, "IMAGES", tmp_path / "images")
    (tmp_path / "own" / "hour-100").mkdir(parents=True)
    settings = script("hour").settings_of("ours")
    pictures.figures.save("hour", ["side"], [["ours", "100", "amd", settings, "60", "1", "0.5"]])
    filmed = []
    monkeypatch.setattr(pictures, "film", lambda *which: filmed.append(which))
    pictures.main()
    assert filmed == []
    for task in MT10:
        (tmp_path / "own" / "hour-100" / f"{task}.mp4").touch()
    pictures.main()
    assert len(filmed) == 1


@pytest.mark.parametrize(
    ("bench", "name", "key"),
    [
        ("pixels", "pixels", ("reach-pixels", 0)),
        ("algorithms_learning", "algorithms_learning_runs", ("arm-ppo", 0, 10)),
    ],
)
def test_rows_of_other_settings_stay_until_they_are_made_anew(script, bench, name, key):
    found = script(bench)
    line = [*map(str, key), *["1"] * (len(found.HEAD) - len(key))]
    found.figures.save(name, found.HEAD, [line])
    rows, todays = found.known()
    assert rows[key] in (line, [line])
    assert todays == set()


def test_old_seeds_are_not_averaged_with_new_ones(script, monkeypatch):
    bench = script("algorithms_learning")
    lines = {seed: ["arm-ppo", str(seed), str(bench.STEPS), str(bench.STEPS)] for seed in (0, 1)}
    full = {seed: [*line, *["1"] * (len(bench.HEAD) - len(line))] for seed, line in lines.items()}
    bench.figures.save("algorithms_learning_runs", bench.HEAD, list(full.values()))
    monkeypatch.setattr(bench, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    monkeypatch.setattr(bench, "trained", lambda _name, seed, _steps: [full[seed]])
    monkeypatch.setattr(sys, "argv", ["bench", "--algorithms", "arm-ppo", "--seeds", "1"])
    bench.main()
    assert [row[:2] for row in bench.figures.read(bench.figures.newest("algorithms_learning"))[1:]] == [
        ["arm-ppo", "1"]
    ]


def test_the_hour_waits_for_the_search(script):
    hour = script("hour")
    with pytest.raises(SystemExit, match="end the search first"):
        hour.hour(1, hour.MINUTES)


def test_without_a_gpu_nothing_is_measured_and_one_sentence_says_so(script, monkeypatch, capsys, tmp_path):
    gpu = script("gpu")
    monkeypatch.setattr(gpu.torch.cuda, "is_available", lambda: False)
    gpu.main()
    assert capsys.readouterr().out.startswith("no NVIDIA GPU is here: nothing was measured")
    assert not (tmp_path / "own").exists()


@pytest.mark.long
def test_the_bench_of_a_gpu_goes_through_all_of_its_code_on_a_cpu(script, tmp_path):
    presets = script("gpu").PRESETS
    folder = tmp_path / "bench"
    folder.mkdir()
    for name in ("gpu.py", "figures.py"):
        (folder / name).write_text((BENCH / name).read_text())
    done = subprocess.run(
        [sys.executable, str(folder / "gpu.py"), "--small"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WORK_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    found = {path.stem: path.read_text().splitlines() for path in (folder / "out").glob("gpu_small*.csv")}
    assert [len(found["gpu_small"]), len(found["gpu_small_resume"])] == [1 + 3 * len(presets), 2]
    assert found["gpu_small_resume"][1].endswith(",2,same")
    assert len(found["gpu_small_curve"]) > 1


def test_a_tasks_success_is_that_of_the_last_points(script):
    hour = script("hour")
    lines = [
        [side, seed, "amd", "s", str(minutes), "1", *[str(rate)] * 10, str(rate)]
        for side, seed, minutes, rate in (("ours", "1", 30, 0.9), ("ours", "1", 60, 0.5), ("ours", "2", 60, 0.7))
    ]
    runs, first, *_, mean = hour.by_task(lines)
    assert runs == ["runs", "2", "0"]
    assert first == ["reach-v3", "0.600", "nan"]
    assert mean[:2] == ["mean", "0.600"]
