"""The command under a tile: for a shell, whatever strangers wrote."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from viewer.live.hub import AgentPlace, film_command

AGENT = AgentPlace(Path("/data/my runs/shared"), "mt10-0123abcd", 3, "any")
TASKS = ("reach-v3", "evil; rm -rf ~/'$(x)", "push-v3")


def test_the_slots_newest_policy_is_filmed() -> None:
    words = shlex.split(film_command(AGENT, {"task": "push-v3"}, TASKS))
    assert words[:5] == ["trainer", "play", "mt10-0123abcd/3", "--shared-dir", "/data/my runs/shared"]
    assert words[5:] == ["--task", "push-v3", "--out", "mt10-slot3-push-v3.mp4"]


def test_a_task_of_a_stranger_stays_one_word_and_names_no_folder() -> None:
    words = shlex.split(film_command(AGENT, {"task": TASKS[1]}, TASKS))
    assert words[words.index("--task") + 1] == TASKS[1]
    assert "/" not in words[-1]
    assert words[-1].endswith(".mp4")


@pytest.mark.parametrize("said", [{}, {"task": "door-open-v3"}, {"task": None}])
def test_where_its_task_is_not_known_it_is_the_first_and_without_tasks_there_is_none(said: dict[str, Any]) -> None:
    assert "--task reach-v3" in film_command(AGENT, said, TASKS)
    assert film_command(AGENT, said, ()) == ""
