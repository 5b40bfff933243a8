from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from trainer.commands.autotune import autotune, compared, save_settings
from trainer.config.read import read_section
from trainer.tuning.training import (
    WORTH_CHANGING,
    Memory,
    Setting,
    Trial,
    advise,
    explore,
    of_ranks,
    thread_counts,
    worker_counts,
)

GB = 2**30
ROOM = Memory(GB, GB, 325, GB, 16 * GB)
OWN = Setting(10, 2, 1)
SETTINGS = st.builds(Setting, st.integers(1, 40), st.integers(0, 8), st.integers(1, 4))


def test_who_tried_one_setting_does_not_say_that_nothing_is_to_be_changed():
    alone, others = Trial(OWN, 50.0), Trial(Setting(5, 2, 1), 20.0)
    assert compared(OWN, [alone], advise(OWN, [alone], ROOM)) == (
        "as it is: nothing else was measured in that time; --budget gives it more"
    )
    both = [alone, others]
    assert compared(OWN, both, advise(OWN, both, ROOM)) == "as it is: nothing to change"
    faster = [alone, Trial(Setting(20, 2, 1), 100.0)]
    assert compared(OWN, faster, advise(OWN, faster, ROOM)) == "2.00 times as fast as now"


@given(st.dictionaries(SETTINGS, st.floats(1, 1e5), max_size=12), st.floats(1, 1e5))
def test_what_is_chosen_is_measured_exact_and_a_clear_gain_or_nothing(rates, own_rate):
    trials = [Trial(setting, rate) for setting, rate in {**rates, OWN: own_rate}.items()]
    best = advise(OWN, trials, ROOM)
    assert Trial(best.setting, best.steps_per_s) in trials
    assert best.setting.threads == OWN.threads  # more would cost the exact resume
    fastest = max(trial.steps_per_s for trial in trials if trial.setting.threads == 1)
    assert best.steps_per_s >= fastest / WORTH_CHANGING
    assert best.setting == OWN or best.gain > 1.0


def test_of_settings_that_are_as_fast_the_smallest_is_chosen():
    trials = [Trial(OWN, 50.0), Trial(Setting(40, 2, 1), 100.0), Trial(Setting(20, 2, 1), 97.0)]
    assert advise(OWN, trials, ROOM).setting == Setting(20, 2, 1)


def test_threads_are_told_of_and_not_chosen():
    trials = [Trial(OWN, 50.0), Trial(Setting(10, 2, 2), 90.0)]
    best = advise(OWN, trials, ROOM)
    assert best.setting == OWN
    assert "threads 2 is 1.8 times as fast, but only 1 resumes bit for bit" in best.notes[0]


def test_a_replay_that_does_not_fit_is_told_with_what_would():
    full = Memory(2 * GB, 10 * GB, 325, GB, 8 * GB)
    [note] = advise(OWN, [Trial(OWN, 1.0)], full).notes
    assert "13.0 GB are needed, 8.0 GB are there" in note
    assert f"lower buffer_size to {5 * GB // 325:,}" in note
    [note] = advise(OWN, [Trial(OWN, 1.0)], Memory(9 * GB, GB, 325, 0, 8 * GB)).notes
    assert "ask for more" in note
    assert "buffer_size" not in note
    assert not advise(OWN, [Trial(OWN, 1.0)], Memory(9 * GB, GB, 325, 0, None)).notes


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
    assert advise(OWN, trials, ROOM).setting == OWN


def test_what_does_not_work_or_has_no_time_is_left_out():
    asked, trials = explored(lambda s: None if s.workers == 4 or s.num_envs > 10 else 1.0)
    assert len(asked) > len(trials) == 3
    assert explored(lambda s: None)[1] == []


def test_what_is_tried_depends_on_the_machine():
    assert worker_counts(6, is_native=True) == [0, 2, 4, 6]
    assert worker_counts(6, is_native=False) == [0, 1, 2, 4, 6]
    assert worker_counts(1, is_native=True) == [0]
    assert (thread_counts(6, is_cpu=True), thread_counts(64, is_cpu=True)) == ([1, 2, 4, 6], [1, 2, 4, 8])
    assert thread_counts(64, is_cpu=False) == []


@pytest.mark.parametrize(
    "before",
    [
        {"run_name": "mt10", "slots": 2, "training": {"preset": "tiny", "num_envs": 3}},
        {"run_name": "mt10"},
        {"preset": "tiny", "total_steps": 100},
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
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
        ({"save": True, "preset": "tiny"}, "cli.save-without-config"),
        ({"preset": "tinny"}, "preset.unknown"),
        ({"preset": "tiny", "again": True}, "cli.autotune-of-actors"),
        ({"preset": "tiny", "user_id": "ann"}, "cli.autotune-of-actors"),
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


def test_more_gpus_pay_where_an_update_takes_ten_times_as_long_as_its_exchange() -> None:
    small = of_ranks(update_s=0.001, gradient_bytes=40_000_000, shares=True)
    assert small == (
        "more GPUs for one slot would not pay: an update takes 1.0 ms, to exchange its 40.0 MB of gradients 4.04 ms at "
        "best; use them for more slots (docs/ranks.md)"
    )
    large = [of_ranks(update_s=0.0405, gradient_bytes=40_000_000, shares=shares) for shares in (True, False)]
    assert large[0].startswith("several ranks may pay: an update takes 40.5 ms, to exchange")
    assert large[1].startswith("one GPU is all that this algorithm uses for a slot: an update takes 40.5 ms")


def test_where_the_first_rank_sends_the_batch_that_counts_too() -> None:
    words = "its 40.0 MB of gradients and 10.0 MB of its batch 5.12 ms at best"
    assert words in of_ranks(update_s=0.0511, gradient_bytes=40_000_000, batch_bytes=10_000_000, shares=True)
    for update_s, begin in ((0.0511, "more GPUs for one slot would not pay"), (0.0513, "several ranks may pay")):
        assert of_ranks(update_s, 40_000_000, 10_000_000, shares=True).startswith(begin)
