"""What an older version wrote goes on today: trainings at their stored step with the stored state, runs of the
orchestrator from their ledger, a laptop's mirror from its counts.

`tests/fixtures/checkpoints/make.py` made them, by the code of an older commit. Each is laid out in a folder of the
test's own. What is compared depends on no processor: what is read of a checkpoint, and what the training has before any
update, against what the older version itself read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from old_runs import CONTRIBUTED, FIXTURES, LOADED, by_part, loaded, unpacked
from relay import REPOSITORY, SUPPORT, Relay
from typed_trainings import run
from watching import client_env, syncd

ALGORITHMS = ("a2c", "drqv2", "mtsac", "ppo", "sac", "td3")
#: Of these no older version has written anything.
NEW = {"cloning"}
#: What each does not have is not what it was made for.
DISCRETE, AVERAGED = {"ppo", "sac"}, {"a2c", "mtsac", "ppo", "sac", "td3"}


def recorded(name: str) -> dict[str, Any]:
    """What the version that made it read of its newest checkpoint."""
    return dict(json.loads((FIXTURES / name / LOADED).read_text()))


def test_every_algorithm_has_one() -> None:
    ours = {path.stem for path in (REPOSITORY / "trainer/algorithms").glob("[!_]*")} - {"base", "common"}
    assert ours == {*ALGORITHMS, *NEW}


@pytest.mark.trainer
@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_is_read_and_put_back_is_what_was_stored(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    slot = unpacked(name, tmp_path / "old") / "run/slots/0"
    expected = recorded(name)
    assert loaded(slot) == expected
    assert ("averaged" in expected["parts"]) == (name in AVERAGED)
    assert ("contributed" in expected["rows"]) == (name == "mtsac")
    found = put_back(slot, name)
    assert found == {part: digest for part, digest in expected["parts"].items() if part in found}
    assert set(expected["parts"]) - set(found) <= {"meter"}


def put_back(slot: Path, name: str) -> dict[str, Any]:
    """What a checkpoint would hold that were taken as soon as the training has the stored state."""
    from point_run import CPU, envs_of
    from slot_digest import newest

    from trainer.checkpoints.checkpoint import read_manifest
    from trainer.checkpoints.resume import load_exact, training_of
    from trainer.envs.spaces import Discrete
    from trainer.envs.step import VectorSpec
    from trainer.envs.suite import suite_of
    from trainer.envs.vector import VectorEnv
    from trainer.training.run import capture, resumed

    folder = newest(slot)
    manifest = read_manifest(folder)
    contents, experience = load_exact(folder, slot, manifest)
    training = training_of(manifest)
    spec = VectorSpec(suite_of(training), training.num_envs, training.seed, attempt=1)
    envs = envs_of(training) if name == "mtsac" else VectorEnv(spec)
    assert isinstance(envs.spaces.action, Discrete) == (name in DISCRETE)
    try:
        state = resumed(training, CPU, envs, contents, experience)
        wanted = contents.parts["run"].numbers["wanted"]
        parts = by_part(capture(state, contents.numeric, {"wanted": wanted}))
        if len(contents.parts["meter"].numbers["sums"]) != len(type(state.algorithm).METRICS):
            parts.pop("meter")  # it has another metric since: the means of that row begin anew
        return parts
    finally:
        envs.close()


@pytest.mark.long
@pytest.mark.trainer
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_training_goes_on_where_it_stood_and_is_finished(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from slot_digest import gaps, newest

    from trainer.history.read import read

    folder = unpacked(name, tmp_path / "old")
    step = recorded(name)["step"]
    if name == "mtsac":
        said = run(folder, str(SUPPORT / "train_contributed.py"), "run", "[{}]", json.dumps(CONTRIBUTED))
        assert json.loads(said.splitlines()[-1]) == [0], said
    else:
        said = run(folder, "-m", "trainer", "train", "--config", "training.json", "--run-dir", "run")
    assert f"attempt 1: continuing at step {step} of attempt 0" in said
    slot = folder / "run/slots/0"
    parent = json.loads((slot / "attempts/1/parent.json").read_text())
    assert (parent["attempt"], parent["step"]) == (0, step)
    total = CONTRIBUTED["total_steps"] if name == "mtsac" else 240
    assert int(newest(slot).name) == total
    rows = read(slot)
    assert gaps(rows) == []
    assert rows[-1]["to"] == total


@pytest.fixture
def old_relay(tmp_path: Path) -> Iterator[Relay]:
    """The stopped run of the counting program, as if it had been brought here from the machine that it was made on."""
    folder = unpacked("relay", tmp_path / "old") / "toy"
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    state = {"XDG_STATE_HOME": str(folder / "state"), "TMPDIR": str(scratch)}
    relay = Relay(folder, {**os.environ, "PYTHONPATH": str(REPOSITORY), **state})
    yield relay
    relay.clean_up()


@pytest.mark.long
def test_a_run_goes_on_from_an_older_ledger(old_relay: Relay) -> None:
    view = old_relay.status()
    assert view["state"] == "stopped"
    assert view["run_id"] == json.loads((old_relay.run_dir / "run.json").read_text())["run_id"]
    assert [slot["checkpoint_step"] for slot in view["slots"]] == [20, 20, 20]
    assert [slot["jobs"] for slot in view["slots"]] == [1, 2, 1]
    assert [slot["state"] for slot in view["slots"]] == ["stopped", "stopped", "paused"]
    assert [slot["last_cause"] for slot in view["slots"]] == ["asked to"] * 3
    epoch = old_relay.ledger()["epoch"]

    assert old_relay.run("resume", "2").code == 0
    done = old_relay.run("start")

    assert done.code == 0, done.words
    assert old_relay.status()["state"] == "finished"
    assert old_relay.ledger()["epoch"] > epoch
    for slot, last in ((0, 1), (1, 2), (2, 1)):
        assert old_relay.attempts(slot) == list(range(last + 1))
        parent = old_relay.read("parent.json", last, slot)
        assert (parent["attempt"], parent["step"]) == (last - 1, 20)
        assert old_relay.counted(slot) == 60
    old_relay.assert_exactly_once(60, slot=0)
    old_relay.assert_exactly_once(60, slot=2)


@pytest.mark.long
def test_a_mirror_goes_on_from_older_counts(tmp_path: Path) -> None:
    folder = unpacked("mirror", tmp_path / "old")
    env = client_env(tmp_path / "home")
    laptop = str(folder / "laptop")
    before = json.loads(syncd("status", laptop, "--json", env=env).stdout)
    assert (before["contributions"]["sent"], before["contributions"]["accepted"]) == (1, 1)
    done = syncd("bidirectional", str(folder / "shared"), laptop, "--json", env=env)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["offered"], told["policies"], told["sent"], told["waiting"]) == (1, [], 1, 0)
    after = json.loads(syncd("status", laptop, "--json", env=env).stdout)
    assert (after["contributions"]["sent"], after["contributions"]["accepted"]) == (2, 1)
