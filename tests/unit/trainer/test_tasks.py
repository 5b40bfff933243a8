from __future__ import annotations

import json
import re

import numpy as np
import pytest
from refused import refused

from trainer.config.suites import checked_tasks
from trainer.envs.suites.metaworld import goals as tasks


@pytest.fixture
def drawn(monkeypatch):
    """Goal tables come from here instead of Meta-World; the list says for what."""
    calls = []

    def draw(task, seed):
        calls.append((task, seed))
        return np.random.default_rng(seed).uniform(-1, 1, (50, 6))

    monkeypatch.setattr(tasks, "_draw", draw)
    return calls


@pytest.mark.parametrize(
    ("name", "near"),
    [("reach-v2", '"reach-v3"'), ("pick-plaec-v3", '"pick-place-v3"'), ("zzzzzz", "task names end in -v3")],
)
def test_a_wrong_name_is_refused_with_the_nearest_one(name, near):
    with refused("env.unknown-task", task=name, hint=re.compile(near)):
        checked_tasks([name])


def test_a_cached_table_is_the_same_to_the_last_bit_and_not_drawn_again(drawn, tmp_path):
    first = tasks.goal_table("push-v3", 7, tmp_path / "goals")
    again = tasks.goal_table("push-v3", 7, tmp_path / "goals")
    assert first.tobytes() == again.tobytes()
    assert (again.dtype, again.shape) == (np.float64, (50, 6))
    assert drawn == [("push-v3", 7)]


def _cut(text: str) -> str:
    return text[: len(text) // 2]


def _one_digit_off(text: str) -> str:
    value = json.loads(text)
    value["goals"][3][1] += 1e-16 + abs(value["goals"][3][1]) * 1e-15
    return json.dumps(value)


def _ragged(text: str) -> str:
    value = json.loads(text)
    value["goals"][0] = [1.0]
    return json.dumps(value)


@pytest.mark.parametrize("damage", [_cut, _one_digit_off, _ragged, lambda _: "[]"])
def test_a_damaged_table_is_made_anew_in_silence(drawn, tmp_path, damage, caplog):
    good = tasks.goal_table("push-v3", 7, tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_text(damage(path.read_text()))
    assert tasks.goal_table("push-v3", 7, tmp_path).tobytes() == good.tobytes()
    assert tasks.goal_table("push-v3", 7, tmp_path).tobytes() == good.tobytes()
    assert len(drawn) == 2
    assert not caplog.records
