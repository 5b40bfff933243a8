from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from trainer.commands.autotune import autotune, save_settings
from trainer.config.read import read_section
from trainer.tuning.training import WORTH_CHANGING, Setting, Trial, advise, explore

OWN = Setting(10, 2, 1)
SETTINGS = st.builds(Setting, st.integers(1, 40), st.integers(0, 8), st.integers(1, 4))


@given(st.dictionaries(SETTINGS, st.floats(1, 1e5), max_size=12), st.floats(1, 1e5))
def test_what_is_chosen_is_measured_exact_and_a_clear_gain_or_nothing(rates, own_rate):
    trials = [Trial(setting, rate) for setting, rate in {**rates, OWN: own_rate}.items()]
    best = advise(OWN, trials)
    assert Trial(best.setting, best.steps_per_s) in trials
    assert best.setting.threads == OWN.threads  # more would cost the exact resume
    fastest = max(trial.steps_per_s for trial in trials if trial.setting.threads == 1)
    assert best.steps_per_s >= fastest / WORTH_CHANGING
    assert best.setting == OWN or best.gain > 1.0


def test_of_settings_that_are_as_fast_the_smallest_is_chosen():
    trials = [Trial(OWN, 50.0), Trial(Setting(40, 2, 1), 100.0), Trial(Setting(20, 2, 1), 97.0)]
    assert advise(OWN, trials).setting == Setting(20, 2, 1)


def test_threads_are_told_of_and_not_chosen():
    trials = [Trial(OWN, 50.0), Trial(Setting(10, 2, 2), 90.0)]
    best = advise(OWN, trials)
    assert best.setting == OWN
    assert "threads 2 is 1.8 times as fast, but only 1 resumes bit for bit" in best.notes[0]


def explored(rate_of, own=OWN, tasks=10, workers=(0, 2, 4), threads=(1, 2)):
    asked = []

    def attempt(setting):
        asked.append(setting)
        return rate_of(setting)

    return asked, explore(own, tasks, workers, threads, attempt)


def test_each_setting_is_tried_once_from_the_best_so_far():
    asked, trials = explored(lambda s: 10.0 * s.workers + s.num_envs + s.threads)
    assert asked == [
        OWN,
        Setting(10, 0, 1),
        Setting(10, 4, 1),
        Setting(20, 4, 1),
        Setting(40, 4, 1),
        Setting(40, 4, 2),
        OWN,
    ]
    assert [trial.setting for trial in trials] == asked[:-1]


def test_a_gain_that_is_gone_when_the_old_settings_are_tried_again_is_none():
    rates = iter([50.0, *[90.0] * 5, 95.0])
    _, trials = explored(lambda _: next(rates))
    assert advise(OWN, trials).setting == OWN


def test_what_does_not_work_or_has_no_time_is_left_out():
    asked, trials = explored(lambda s: None if s.workers == 4 or s.num_envs > 10 else 1.0)
    assert len(asked) > len(trials) == 3
    assert explored(lambda s: None)[1] == []


@pytest.mark.parametrize(
    "before",
    [
        {"run_name": "mt10", "slots": 2, "training": {"preset": "tiny", "num_envs": 3}},
        {"run_name": "mt10"},
        {"preset": "tiny", "total_steps": 100},
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_what_is_saved_is_what_the_trainer_reads_and_the_rest_stays(tmp_path, before, encoding):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(before), encoding=encoding)
    path.chmod(0o660)  # a group's
    asked = read_section(path, None, [])
    save_settings(path, {"num_envs": 20, "num_workers": 2})
    now = read_section(path, None, [])
    assert (now.training.num_envs, now.training.num_workers) == (20, 2)
    assert now.training == asked.training.model_copy(update={"num_envs": 20, "num_workers": 2})
    others = {name: value for name, value in before.items() if name != "training"}
    assert others.items() <= json.loads(path.read_text()).items()
    assert path.stat().st_mode & 0o777 == 0o660


@pytest.mark.parametrize(
    ("wish", "wrong"),
    [
        ({"save": True}, "cli.save-without-config"),
        ({"preset": "tiny", "again": True}, "cli.autotune-of-actors"),
    ],
)
def test_wishes_that_cannot_be_met_are_refused_before_anything_is_measured(wish, wrong):
    with refused(wrong):
        autotune(**wish)


def test_what_was_overlaid_is_not_saved(tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"preset": "tiny"}')
    with refused("cli.save-of-other-settings"):
        autotune(config=config, save=True, settings=["num_envs=3"])
    assert config.read_text() == '{"preset": "tiny"}'
