from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from trainer.commands.autotune import autotune, save_settings
from trainer.config.read import read_section
from trainer.tuning.training import WORTH_CHANGING, Setting, advise, explore

OWN = Setting(10, 2)
SETTINGS = st.builds(Setting, st.integers(1, 40), st.integers(0, 8))


@given(st.dictionaries(SETTINGS, st.floats(1, 1e5), max_size=12), st.floats(1, 1e5))
def test_what_is_chosen_is_measured_and_a_clear_gain_or_nothing(rates, own_rate):
    rates = {**rates, OWN: own_rate}
    best = advise(OWN, rates)
    assert rates[best] >= max(rates.values()) / WORTH_CHANGING
    assert best == OWN or rates[best] > own_rate


def test_of_settings_that_are_as_fast_the_smallest_is_chosen():
    assert advise(OWN, {OWN: 50.0, Setting(40, 2): 100.0, Setting(20, 2): 97.0}) == Setting(20, 2)


def explored(rate_of):
    asked = []

    def attempt(setting):
        asked.append(setting)
        return rate_of(setting)

    return asked, explore(OWN, 10, (0, 2, 4), attempt, graph=True)


def test_each_setting_is_tried_once_from_the_best_so_far():
    asked, rates = explored(lambda s: 10.0 * s.workers + s.num_envs)
    more = Setting(20, 4), Setting(40, 4), Setting(40, 4, cuda_graph=True)
    assert asked == [OWN, Setting(10, 0), Setting(10, 4), *more]
    assert list(rates) == asked


def test_what_does_not_work_or_has_no_time_is_left_out():
    asked, rates = explored(lambda s: None if s.workers == 4 or s.num_envs > 10 else 1.0)
    assert len(asked) > len(rates) == 3
    assert explored(lambda s: None)[1] == {}


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
