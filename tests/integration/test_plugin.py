"""A suite and an algorithm in a wheel of their own: installed, named in a config, trained, handed over."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from refused import refused
from slot_digest import gaps
from typed_trainings import bits_of, run
from typed_trainings import train as typed

from anchorleg.job import HANDED_OVER, attempt_numbers
from syncd.store import Shared, newest
from trainer.checkpoints.checkpoint import CheckpointManifest
from trainer.checkpoints.resume import training_of
from trainer.config.find import ALGORITHMS, ENCODERS, SUITES, names
from trainer.history.read import read_evaluations
from trainer.sharing.policies import load

pytestmark = pytest.mark.trainer
ROOT = Path(__file__).resolve().parents[2]
TRAINING = {
    "preset": "debug",
    "env": "points",
    "algorithm": {"name": "drift"},
    "step_size": 0.05,
    "network": {"actor_hidden": [16], "encoders": {"state": "waves"}},
    "num_envs": 4,
    "total_steps": 1200,
    "checkpoint_interval": 200,
    "metrics_interval": 70,
    "publish_interval": 20,
    "evaluation_goals": 2,
    "num_workers": 0,
}
#: `python -m trainer`, which asks itself to hand over before a step of one of its environments.
HANDING_OVER = """
import os, signal, sys
from anchorleg_toys.points import Point
from trainer.cli import main
left, step = int(sys.argv.pop(1)), Point.step
def counted(self, action):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGUSR2)
    return step(self, action)
Point.step = counted
main()
"""
#: A login node: no torch, no numpy.
LIGHT = """
import sys
sys.modules |= dict.fromkeys(("torch", "numpy"))
from orchestrator.cli import main
main()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder with the wheel's files, which the tests see too: they read checkpoints."""
    folder = tmp_path_factory.mktemp("installed")
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--disable-pip-version-check")
    run(folder, "-m", "pip", "install", *options, "--target", folder, ROOT / "tests/plugin", PYTHONPATH="")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        importlib.invalidate_caches()
        yield folder


def path_of(installed: Path) -> str:
    """PYTHONPATH: the project and the wheel, and not the folder that the wheel was built from."""
    return os.pathsep.join(map(str, (ROOT, installed)))


def train(folder: Path, installed: Path, *command: str, expected: int = 0, **fields: object) -> str:
    return typed(folder, {**TRAINING, **fields}, *command, expected=expected, PYTHONPATH=path_of(installed))


@pytest.mark.long
def test_three_hand_overs_change_no_bit_of_what_a_wheel_brings(installed: Path, tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    said = train(whole, installed, "-m", "trainer", num_workers=2)
    assert "complete: 1,200 steps, 150 updates" in said
    assert "Traceback" not in said
    # A rollout has four vector steps: these stop in the middle of one, before the updates from one, and after its first
    # step.
    for vector_steps, stopped_at in ((63, 252), (81, 576), (33, 708)):
        moment = str(vector_steps * TRAINING["num_envs"])
        said = train(broken, installed, "-c", HANDING_OVER, moment, expected=HANDED_OVER)
        assert f"handed over at step {stopped_at} (SIGUSR2)" in said
        assert "Traceback" not in said
    assert "continuing at step 708 of attempt 2" in train(broken, installed, "-m", "trainer")
    assert attempt_numbers(broken / "run/slots/0") == [0, 1, 2, 3]
    expected = bits_of(whole)
    assert bits_of(broken) == expected
    assert expected["step"] == TRAINING["total_steps"]
    assert expected["replay"] is None
    assert gaps(expected["metrics"]) == []
    assert sum(row["updates"] for row in expected["metrics"]) == 150
    assert set(expected["metrics"][-1]["tasks"]) == {"left", "middle", "right"}
    for folder in (whole, broken):
        (evaluation,) = read_evaluations(folder / "run/slots/0")
        assert set(evaluation["success"]) == {"left", "middle", "right"}
        place = Shared(folder / "run/shared").slots()[0]
        manifest = newest(place)
        assert manifest is not None
        assert (manifest.step, manifest.suite.name, manifest.tasks) == (1200, "points", ("left", "middle", "right"))
        assert load(place, manifest).spec.network.encoders == {"state": "waves"}


def test_its_names_are_known_beside_our_own(installed: Path) -> None:
    assert {"points", "metaworld"} <= set(names(SUITES))
    assert {"drift", "mtsac"} <= set(names(ALGORITHMS))
    assert "waves" in names(ENCODERS)


def test_a_checkpoint_says_which_package_is_missing_where_it_is_read() -> None:
    training = {"env": {"name": "planes", "tasks": ["up"]}}
    manifest = CheckpointManifest(
        format=2, kind="exact", step=0, identity="", training=training, versions={}, files={}, segments=()
    )
    with refused("damaged.other-training"):
        training_of(manifest)


def start(folder: Path, installed: Path, expected: int = 0, **fields: object) -> str:
    config = {"run_name": "toys", "executor": "local", "training": {**TRAINING, **fields}}
    (folder / "cluster_config.json").write_text(json.dumps(config))
    return run(folder, "-c", LIGHT, "start", "--dry-run", expected=expected, PYTHONPATH=path_of(installed))


@pytest.mark.long
def test_a_login_node_without_torch_checks_a_config_that_names_it(installed: Path, tmp_path: Path) -> None:
    assert "would submit a job for slot 0" in start(tmp_path, installed)
    assert "there is no algorithm 'drifd'" in start(tmp_path, installed, 2, algorithm="drifd")
    assert "step_size" in start(tmp_path, installed, 2, step_size=-1)
