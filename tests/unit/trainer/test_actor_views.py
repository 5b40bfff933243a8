"""What actors count, and what their user sees of it."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

pytest.importorskip("metaworld")

from trainer.actors.views import ActorCounts, ActorDisplay, Playing, Recording, TaskScore, network_words, screen
from trainer.config.suites import MT50

pytestmark = pytest.mark.trainer

BUSY = Playing(
    doing="playing",
    steps=1_234_567,
    episodes=2_469,
    steps_per_s=1024.4,
    envs=32,
    workers=7,
    run="mt50-with-a-very-[long]-name-0123abcd",
    policy="12-3456",
    policy_step=19_000_000,
    policy_age_s=75.0,
    tasks={name: TaskScore(9, 0.5, 4321.0) for name in MT50},
    recording=Recording(2000, 9, 3, 12345, 12000, {"version_lag": 40, "duplicate": 2, "quota": 9}, "full"),
    network="offline since 12:00:00; playing goes on",
)


def test_fifty_tasks_fit_into_a_terminal_and_a_line_and_an_object_say_the_same():
    out = io.StringIO()
    Console(file=out, width=80, color_system=None).print(screen(BUSY))
    assert max(map(len, out.getvalue().splitlines())) <= 80
    assert len(out.getvalue().splitlines()) <= 36
    assert all(name.removesuffix("-v3") in out.getvalue() for name in MT50)
    for words in (
        "12-3456 of mt50-with-a-very-[long]",
        "step 19,000,000, 1 min 15 s old",
        "1,024 steps/s",
        "51 refused",
    ):
        assert words in BUSY.line()
    assert json.loads(json.dumps(BUSY.as_json()))["recording"]["refused"]["version_lag"] == 40


def test_in_a_pipe_a_change_of_what_it_does_is_told_at_once_and_the_rest_every_ten_seconds(capsys):
    with ActorDisplay(console=Console(file=io.StringIO())) as show:
        for doing in ("waiting", "waiting", "playing", "playing"):
            show.progress(Playing(doing=doing))
    assert len(capsys.readouterr().out.splitlines()) == 2


def a_step(success):
    return SimpleNamespace(
        task=np.arange(2), finished=np.array([True, False]), episode_success=np.array([success, False]),
        episode_return=np.full(2, 7.0),
    )  # fmt: skip


def test_success_is_that_of_the_last_fifty_episodes_of_each_task(tmp_path):
    clock = iter(range(1000))
    counts = ActorCounts(tmp_path, 2, 0, "cpu", clock=lambda: float(next(clock)))
    counts.swapped(SimpleNamespace(manifest=SimpleNamespace(tasks=("a", "b"))), is_other_slot=True)
    for number in range(55):
        counts.stepped(a_step(number < 10), ("a", "b"))
    playing = counts.playing(None)
    assert playing.tasks == {"a": TaskScore(55, 5 / 50, 7.0), "b": TaskScore(0, 0.0, 0.0)}
    assert (playing.steps, playing.episodes, playing.success) == (110, 55, pytest.approx(0.1))
    assert playing.steps_per_s == pytest.approx(2.0, rel=0.2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, None),
        ("{torn", None),
        ('{"state": "live", "since": 90, "written_at": 99}', "live since "),
        ('{"state": "offline", "since": 90, "written_at": 99}', "; playing continues"),
        ('{"state": "live", "since": 5, "written_at": 9}', "no syncd is running here"),
    ],
)
def test_the_network_is_what_syncd_said_last(tmp_path, text, words):
    (tmp_path / "state").mkdir()
    if text is not None:
        (tmp_path / "state" / "status.json").write_text(text)
    found = network_words(tmp_path, now=100.0)
    assert found is None if words is None else words in found
