"""Actors with real environments and real publications of small nets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from daemons import PATIENCE_S, wait_for

pytest.importorskip("metaworld")

import torch
from playing_actors import UNHURRIED, Screen, actors
from published import RUN, TASKS, publish, training_of
from refused import refused
from suites import spaces_like

from anchorleg.files import read_json_or_none
from syncd import store
from trainer.actors.actors import Actors, Plan
from trainer.envs.suites.metaworld.shapes import BOUNDS
from trainer.sharing.judge import Accepted, Expectation, judge
from trainer.sharing.selection import Choice

pytestmark = pytest.mark.trainer
HORIZON = 10
TRAINING = training_of(horizon=HORIZON)


def play_and(folder, do, **settings):
    """`actors` while `do(running)` runs."""
    with actors(folder, **settings) as (_, running):
        do(running)


def segments_in(folder):
    return [path for path in (folder / "outbox" / "new").rglob("*") if path.is_file()]


def expectation(*versions, run=RUN, slot=0, horizon=HORIZON):
    known = [(attempt, seq, 100) for attempt, seq in sorted(versions)]
    return Expectation(run, slot, spaces_like(TASKS, horizon), BOUNDS, known, 100, 0)


def test_seconds_count_from_the_first_step_and_not_from_the_building_before_it(tmp_path):
    publish(tmp_path, training=TRAINING)
    plan = Plan(tmp_path, store.Shared(tmp_path), Choice.parse("latest"), 4, 0, torch.device("cpu"), False, seconds=60)
    running = Actors(plan, Screen(), lambda: 1000.0 * (running.counts.steps > 0) + running.counts.steps / 4)
    assert running.run(lambda: False).steps == 61 * 4


@pytest.mark.long
def test_300_segments_of_them_are_honest_and_a_newer_policy_is_swapped_in_between_two_steps(tmp_path):
    publish(tmp_path, training=TRAINING)
    with actors(tmp_path) as (screen, _):
        wait_for(lambda: screen.is_playing("1-1") and screen.last.steps > 200, "play")
        publish(tmp_path, training=TRAINING, seed=1, seq=2)
        wait_for(lambda: screen.is_playing("1-2"), "swap")
        enough = max(310, screen.last.recording.recorded + 40)  # on a busy machine there are many before the swap
        wait_for(lambda: screen.last.recording.recorded >= enough, "recorded")
    expect = expectation((1, 1), (1, 2))
    found = [judge(path.read_bytes(), path.name, expect) for path in segments_in(tmp_path)]
    refused = [verdict for verdict in found if not isinstance(verdict, Accepted)]
    assert len(found) >= 310
    assert len(refused) <= len(found) // 1000, refused
    assert len({verdict.content for verdict in found}) == len(found)
    assert {verdict.segment.task for verdict in found} == set(TASKS)
    steps = {1: [], 2: []}  # by the policy that acted; a busy disk may have cost episodes of single environments
    for segment in (verdict.segment for verdict in found):
        for step, seq in enumerate(segment.version[:, 1].tolist(), segment.episode * HORIZON):
            steps[seq].append(step)
    assert max(steps[1]) < min(steps[2])  # in all environments


def spoiled_golden(draft):
    return draft.model_copy(update={"golden": draft.golden.model_copy(update={"action": ((0.9,) * 4,) * 8})})


def other_metaworld(draft):
    packages = {**draft.suite.packages, "metaworld": "9.0"}
    return draft.model_copy(update={"suite": draft.suite.model_copy(update={"packages": packages})})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (spoiled_golden, "test actions differ"),
        (other_metaworld, "metaworld is 9.0"),
    ],
)
def test_a_policy_that_cannot_be_played_is_named_and_the_last_good_one_goes_on(tmp_path, change, words):
    (tmp_path / "state").mkdir()
    publish(tmp_path, training=TRAINING)
    with actors(tmp_path) as (screen, _):
        wait_for(lambda: screen.is_playing("1-1"), "play")
        publish(tmp_path, training=TRAINING, seed=1, seq=2, change=change)
        wait_for(lambda: screen.notes, "a word")
        steps = screen.last.steps
        wait_for(lambda: screen.last.steps > steps + 20, "goes on")
        assert screen.last.policy == "1-1"
        publish(tmp_path, training=TRAINING, seed=2, seq=3)
        wait_for(lambda: screen.is_playing("1-3"), "the next good one")
    (note,) = screen.notes
    assert words in note
    assert "policy 1-2" in note
    played = read_json_or_none(tmp_path / "state" / "played.json")
    assert played[f"{RUN}/0"]["ok"] is True


def other_mujoco(draft):
    packages = {**draft.suite.packages, "mujoco": "9.9.9"}
    return draft.model_copy(update={"suite": draft.suite.model_copy(update={"packages": packages})})


def other_horizon(draft):
    settings = {**draft.suite.settings, "horizon": 70}
    return draft.model_copy(update={"suite": draft.suite.model_copy(update={"settings": settings})})


@pytest.mark.parametrize("change", [other_mujoco, other_horizon])
def test_a_slot_that_trains_on_in_other_environments_is_played_on(tmp_path, change):
    publish(tmp_path, training=training_of(horizon=50))
    with actors(tmp_path) as (screen, _):
        wait_for(lambda: screen.is_playing("1-1") and screen.last.steps % 200, "play")
        publish(tmp_path, training=training_of(horizon=50), seed=1, seq=2, change=change)
        wait_for(lambda: screen.is_playing("1-2"), "the next one")
        steps = screen.last.steps
        wait_for(lambda: screen.last.steps > steps + 4 * 100, "more than an episode of each")


@pytest.fixture
def python_steps(monkeypatch):
    """Worker processes, as on a machine without a compiler."""
    monkeypatch.setattr("trainer.envs.suites.metaworld.suite.native_tasks", lambda tasks, choice: frozenset())


@pytest.mark.long
@pytest.mark.usefixtures("python_steps")
def test_a_killed_worker_is_replaced_and_what_it_played_before_is_kept(tmp_path):
    publish(tmp_path, training=TRAINING)
    with actors(tmp_path, workers=2) as (screen, running):
        wait_for(lambda: screen.last and screen.last.steps > 100, "play")
        os.kill(running._stage.envs.worker_pids[0], signal.SIGKILL)
        wait_for(lambda: screen.notes, "a word")
        assert "was killed by SIGKILL" in screen.notes[0]
        assert screen.notes[0].endswith("; starting new environments")
        steps = screen.last.steps
        wait_for(lambda: screen.last.steps > steps + 100, "goes on")
    found = [judge(path.read_bytes(), path.name, expectation((1, 1))) for path in segments_in(tmp_path)]
    assert all(isinstance(verdict, Accepted) for verdict in found)


@pytest.mark.long
@pytest.mark.usefixtures("python_steps")
def test_workers_that_die_again_and_again_end_it_with_one_sentence(tmp_path, monkeypatch):
    publish(tmp_path, training=TRAINING)
    monkeypatch.setattr("trainer.actors.actors.MAX_RESTARTS", 1)

    def kill_twice(running):
        killed = set()
        while len(killed) < 2:
            wait_for(lambda: running._stage and set(running._stage.envs.worker_pids) - killed, "new workers")
            killed.add(running._stage.envs.worker_pids[0])
            os.kill(running._stage.envs.worker_pids[0], signal.SIGKILL)
            wait_for(lambda: running._stage is None or not killed & set(running._stage.envs.worker_pids), "noticed")

    with refused("actors.restarted-too-often"):
        play_and(tmp_path, kill_twice, workers=2)


#: The command as it is, but for its politeness: on a busy test machine it would get no time to show how quick it is.
PROGRAM = f"{UNHURRIED}import trainer.commands.actors as it; it._NICE = 0; import trainer.cli; trainer.cli.main()"


def command(folder, *more):
    return [sys.executable, "-c", PROGRAM, "actors", "--shared-dir", str(folder), "--num-envs", "4", *more]


ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.mark.long
def test_ctrl_c_ends_it_and_keeps_what_was_played(tmp_path):
    publish(tmp_path, training=TRAINING)
    process = subprocess.Popen(
        command(tmp_path, "--contribute"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    try:
        wait_for(lambda: segments_in(tmp_path), "segments")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, err) == (0, "")
    last = out.splitlines()[-1]
    assert last.startswith("stopped: ")
    assert f"recorded {len(segments_in(tmp_path)):,} segments" in last


@pytest.mark.long
def test_it_ends_by_itself_and_speaks_json(tmp_path):
    publish(tmp_path, training=TRAINING)
    done = subprocess.run(  # noqa: PLW1510 - the code is what is tested
        command(tmp_path, "--steps", "100", "--json"),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=ENVIRONMENT,
    )
    assert (done.returncode, done.stderr) == (0, "")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows[-1]["end"] is True
    assert rows[-1]["steps"] == 100
    assert rows[-1]["policy"] == "1-1"
    assert not (tmp_path / "outbox").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("folder", "more", "wrong"),
    [
        ("nowhere", (), "shared.no-folder"),
        (".", ("--num-envs", "many"), "cli.num-envs-no-number"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path, folder, more, wrong):
    done = subprocess.run(  # noqa: PLW1510 - the code is what is tested
        command(tmp_path / folder, *more), capture_output=True, text=True, timeout=PATIENCE_S, env=ENVIRONMENT
    )
    assert done.returncode == 2
    assert done.stderr.endswith(f" [{wrong}]\n")
    assert len(done.stderr.splitlines()) == 1
