from __future__ import annotations

import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

pytest.importorskip("metaworld")

from trainer.actors.counts import ActorCounts, network_words
from trainer.actors.views import ActorDisplay, Playing, Recording, TaskScore, screen
from trainer.config.suites import MT50

pytestmark = pytest.mark.trainer
BUSY = Playing(
    doing="playing",
    steps=1_234_567,
    episodes=2_469,
    steps_per_s=1024.4,
    envs=32,
    workers=7,
    run="mt50-with-a-very-long-name-0123abcd",
    policy="12-3456",
    policy_step=19_000_000,
    policy_age_s=75.0,
    tasks={name: TaskScore(9, 0.5, 4321.0) for name in MT50},
    recording=Recording(
        2000, 9, 3, 12345, 12000, {"version_lag": 40, "duplicate": 2, "quota": 9}, "the outbox is full"
    ),
    network="offline since 12:00:00; playing goes on",
)


def shown(playing, width):
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(screen(playing, width))
    return out.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 36), (120, 28)])
def test_fifty_tasks_fit_into_a_terminal_and_nothing_is_cut(width, height):
    lines = shown(BUSY, width)
    assert max(len(line) for line in lines) <= width
    assert len(lines) <= height
    text = "\n".join(lines)
    assert all(name.removesuffix("-v3") in text for name in MT50)
    assert "…" not in text


def test_a_line_for_a_pipe_and_an_object_for_a_machine_say_the_same():
    line = BUSY.line()
    for words in (
        "policy 12-3456 of mt50",
        "step 19,000,000, 1 min 15 s old",
        "1,024 steps/s",
        "success 50 %",
        "51 refused",
    ):
        assert words in line
    assert json.loads(json.dumps(BUSY.as_json()))["recording"]["refused"]["version_lag"] == 40
    assert Playing(doing="waiting for a first policy in /x").line() == "waiting for a first policy in /x"


def test_in_a_pipe_a_change_of_what_it_does_is_told_at_once_and_the_rest_every_ten_seconds(capsys):
    with ActorDisplay(console=Console(file=io.StringIO())) as show:
        for doing in ("waiting", "waiting", "playing", "playing"):
            show.progress(Playing(doing=doing))
    assert capsys.readouterr().out == "waiting\n\n"


def a_step(finished, success):
    n = len(finished)
    return SimpleNamespace(
        task=np.arange(n) % 2,
        finished=np.array(finished),
        episode_success=np.array(success),
        episode_return=np.full(n, 7.0),
    )


def test_success_is_that_of_the_last_fifty_episodes_of_each_task(tmp_path):
    clock = iter(range(1000))
    counts = ActorCounts(tmp_path, 2, 0, "cpu", clock=lambda: float(next(clock)))
    policy = SimpleNamespace(manifest=SimpleNamespace(tasks=("a", "b")))
    counts.swapped(policy, is_other_slot=True)
    for _ in range(10):
        counts.stepped(a_step([True, False], [True, False]), ("a", "b"))
    for _ in range(45):
        counts.stepped(a_step([True, False], [False, False]), ("a", "b"))
    playing = counts.playing(None)
    assert playing.tasks == {"a": TaskScore(55, 5 / 50, 7.0), "b": TaskScore(0, 0.0, 0.0)}
    assert playing.success == pytest.approx(0.1)
    assert (playing.steps, playing.episodes) == (110, 55)
    assert playing.steps_per_s == pytest.approx(2.0, rel=0.2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, None),
        ("{torn", None),
        ('{"state": "live", "since": 90, "written_at": 99}', "live since "),
        ('{"state": "offline", "since": 90, "written_at": 99}', "; playing goes on"),
        ('{"state": "connecting", "since": 20, "written_at": 40}', "connecting since "),  # one try takes so long
        ('{"state": "live", "since": 5, "written_at": 9}', "no syncd is running here"),
        ("[1]", None),
    ],
)
def test_the_network_is_what_syncd_said_last(tmp_path, text, words):
    (tmp_path / "state").mkdir()
    if text is not None:
        (tmp_path / "state" / "status.json").write_text(text)
    found = network_words(tmp_path, now=100.0)
    assert found is None if words is None else words in found
