"""How this machine draws is decided once, for a program and all that it starts."""

from __future__ import annotations

import json
import os

import pytest
from refused import refused

from trainer.commands.policies import play
from trainer.machine import drawing
from trainer.machine.drawing import Drawing, choose_renderer


def those(works):
    """A probe of a machine where these ways work."""
    return lambda way: f"the driver of {way}" if way in works else None


@pytest.mark.parametrize(
    ("works", "environ", "platform", "chosen"),
    [
        ({"egl", "osmesa"}, {}, "linux", "egl"),
        ({"osmesa", "glfw"}, {"DISPLAY": ":0"}, "linux", "osmesa"),
        ({"glfw"}, {"DISPLAY": ":0"}, "linux", "glfw"),
        ({"osmesa", "egl"}, {"MUJOCO_GL": "osmesa"}, "linux", "osmesa"),
        ({""}, {}, "darwin", ""),
    ],
)
def test_the_first_way_of_drawing_that_works_is_taken(works, environ, platform, chosen):
    assert choose_renderer(environ, platform, those(works)) == (chosen, f"the driver of {chosen}")


@pytest.mark.parametrize(
    ("environ", "platform", "words"),
    [
        ({}, "linux", "drawing.nothing-installed"),
        ({"MUJOCO_GL": "egl"}, "linux", "drawing.way-unusable"),
        ({}, "darwin", "drawing.nothing-on-mac"),
    ],
)
def test_where_nothing_draws_one_sentence_says_what_to_do(environ, platform, words):
    with refused(words):
        choose_renderer(environ, platform, those(set()))


@pytest.fixture
def tried(monkeypatch):
    """How often it was looked; the environment of the test's own process is put back."""
    looks = []

    def choose():
        looks.append(os.environ.get(drawing.VARIABLE))
        return Drawing(looks[-1] or "osmesa", "a driver")

    monkeypatch.setattr(drawing, "choose_renderer", choose)
    for name in (drawing.VARIABLE, drawing.FOUND, drawing.THREADS):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    return looks


def test_it_is_looked_once_and_children_find_the_answer(tried):
    assert drawing.prepare() == drawing.prepare() == ("osmesa", "a driver")
    assert tried == [None]
    assert os.environ[drawing.VARIABLE] == "osmesa"
    assert json.loads(os.environ[drawing.FOUND]) == ["osmesa", "a driver"]
    assert os.environ[drawing.THREADS] == "0"


def test_whoever_chooses_another_way_or_number_of_threads_is_obeyed(tried, monkeypatch):
    monkeypatch.setenv(drawing.THREADS, "3")
    drawing.prepare()
    monkeypatch.setenv(drawing.VARIABLE, "egl")
    assert drawing.prepare().way == "egl"
    assert len(tried) == 2
    assert os.environ[drawing.THREADS] == "3"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("film.avi", "film.out-suffix"),
        ("folder.mp4", "film.out-suffix"),
        ("none/inner/film.mp4", "film.no-folder"),
    ],
)
def test_where_no_film_can_go_it_is_said_before_a_policy_is_looked_for(tmp_path, name, sentence):
    (tmp_path / "folder.mp4").mkdir()
    with refused(sentence):
        play(str(tmp_path / "no" / "policy"), out=tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.mp4"]
