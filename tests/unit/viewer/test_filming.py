"""The command under a tile: the very policy where it is known, for a shell, whatever strangers wrote."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from viewer.live.filming import film_command
from viewer.live.troupe import Role

ROLE = Role(Path("/data/my runs/shared"), "mt10-0123abcd", 3, "any")
TASKS = ("reach-v3", "evil; rm -rf ~/'$(x)", "push-v3")


def header(**more: Any) -> dict[str, Any]:
    return {"task": "reach-v3", "facts": {"policy": "2-17"}, **more}


def test_what_this_machine_plays_is_named_by_its_manifest() -> None:
    words = shlex.split(film_command(ROLE, header(), TASKS, is_exact=True))
    manifest = "/data/my runs/shared/v1/runs/mt10-0123abcd/3/manifests/000002-000000017.json"
    assert words == ["trainer", "play", manifest, "--task", "reach-v3", "--out", "mt10-slot3-reach-v3.mp4"]


@pytest.mark.parametrize(
    ("said", "is_exact"), [(header(), False), (header(facts={"policy": "../../x"}), True), (header(facts={}), True)]
)
def test_else_it_is_the_slots_newest(said: dict[str, Any], is_exact: bool) -> None:
    words = shlex.split(film_command(ROLE, said, TASKS, is_exact=is_exact))
    assert words[2:5] == ["mt10-0123abcd/3", "--shared-dir", "/data/my runs/shared"]


def test_a_task_of_a_stranger_stays_one_word_and_names_no_folder() -> None:
    words = shlex.split(film_command(ROLE, header(task=TASKS[1]), TASKS, is_exact=False))
    assert words[words.index("--task") + 1] == TASKS[1]
    assert "/" not in words[-1]
    assert words[-1].endswith(".mp4")


@pytest.mark.parametrize("said", [{}, header(task="door-open-v3"), header(task=None)])
def test_before_anything_is_shown_and_of_another_task_there_is_none(said: dict[str, Any]) -> None:
    assert film_command(ROLE, said, TASKS, is_exact=True) == ""
