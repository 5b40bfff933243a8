"""`trainer demos` as users type it: recorded, exported, imported, fitted, over several jobs, with mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from daemons import PATIENCE_S
from relay import REPOSITORY, SUPPORT

pytest.importorskip("torch")
pytest.importorskip("av")
pytest.importorskip("metaworld")

from demos import SIZE, all_of, recorded, settings, silent
from refused import refused

from trainer.config.suites import Arm, Gymnasium, Metaworld
from trainer.demos import recording
from trainer.demos.matching import rows_of
from trainer.demos.store import Demos
from trainer.envs.spaces import IMAGE, PRIVILEGED, STATE
from trainer.envs.suite import SuiteRef
from trainer.evaluation.protocol import evaluate

pytestmark = pytest.mark.trainer
ENV = {"name": "spots:Spots", "observation": "both", "image_size": SIZE}
TRAINING = {"env": ENV, "network": {"encoder": {"arch": "spots:Eye"}, "actor_hidden": [16]}, "algorithm": "sac"}
PYTHONPATH = f"{REPOSITORY}:{SUPPORT}"


def demos(*words, cwd, **environment):
    return subprocess.run(
        [sys.executable, "-m", "trainer", "demos", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={"PYTHONPATH": PYTHONPATH, "PATH": "/usr/bin:/bin", "HOME": str(cwd), **environment},
        timeout=PATIENCE_S,
        check=False,
    )


def config(folder: Path) -> Path:
    path = folder / "training.json"
    path.write_text(json.dumps(TRAINING))
    return path


@pytest.mark.long
def test_a_scripted_policy_is_recorded_and_the_same_seed_is_the_same_recording(tmp_path):
    words = ("record", "--config", config(tmp_path), "--episodes", 6, "--seed", 3)
    done = demos(*words, "--out", "a", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["episodes"], told["has_actions"], told["cameras"]) == (6, True, ["above"])
    again = demos(*words, "--out", "b", cwd=tmp_path)
    assert "b: 6 episodes" in again.stdout
    assert Demos.open(tmp_path / "a").manifest == Demos.open(tmp_path / "b").manifest
    for told, arrays in all_of(Demos.open(tmp_path / "a")):
        assert (told.success, told.frames, told.task) == (True, told.actions + 1, 0)
        assert np.array_equal(arrays[STATE], arrays[PRIVILEGED][:, :2])
        moved = arrays[PRIVILEGED][:-1, :2] + 0.2 * arrays["action"]
        assert np.allclose(arrays[PRIVILEGED][1:, :2], moved, atol=1e-6)  # what each action led to
        assert arrays["success"].tolist() == [False] * (told.actions - 1) + [True]


def found(env, goal_seed, act):
    """A policy of `env` as `find_playable` has it."""
    spaces = SuiteRef(env, goal_seed).open().spaces.of_policy
    policy = SimpleNamespace(spec=SimpleNamespace(spaces=spaces))
    return SimpleNamespace(name="trained", env=env, goal_seed=goal_seed, act=act, policy=policy)


def test_a_policy_whose_environment_gives_pictures_alone_is_recorded(tmp_path):
    clips = Gymnasium(id="odd_envs:Cameras", observation="clips", image_size=16, frame_stack=2, frame_stride=1)
    with refused("record.other-picture"):
        recording.trained(found(clips, 0, None), (), None)
    env = Gymnasium(id="odd_envs:Handheld", horizon=5)
    policy = found(env, 0, lambda obs, task: np.zeros(len(task), np.int64))
    kept = recording.record(recording.trained(policy, (), None), None, 2, 0, tmp_path / "out", silent, silent)
    assert kept.manifest.frame == (1, 4, 4)
    assert kept.manifest.opened.obs.keys() == {IMAGE}
    seeing = found(settings(), 0, lambda obs, task: np.zeros((1, 2), np.float32))
    shown = SuiteRef(recording.trained(seeing, (), None).env, 0).open().spaces
    assert PRIVILEGED in shown.obs  # where there is a whole state, critics may want it


@pytest.mark.parametrize(("id_", "kwargs"), [("odd_envs:Cameras", {}), ("odd_envs:Eyes", {"names": ["eye"]})])
def test_a_policy_of_pictures_by_another_name_is_shown_its_stacks(tmp_path, id_, kwargs):
    """Beside what the environment renders, which is kept as every recording's pictures are."""
    env = Gymnasium(id=id_, kwargs={"length": 4, **kwargs}, image_size=16, frame_stack=3)
    suite, shown = SuiteRef(env, 0).open(), []

    def act(obs, task):
        shown.append(obs)
        return suite.spaces.no_actions(len(task))

    teacher = recording.trained(found(env, 0, act), (), None)
    kept = recording.record(teacher, None, 2, 0, tmp_path / "out", silent, silent)
    assert len(shown) == 8
    for obs in shown:
        assert {key: array.shape[1:] for key, array in obs.items()} == {
            key: spec.shape for key, spec in suite.spaces.obs.items()
        }
    told = kept.manifest
    assert (told.frame, told.opened.obs["eye"].shape) == ((3, 16, 16), (3, 16, 16))
    assert rows_of(told, suite.spaces).tolist() == [10]  # a training that sees so may learn beside them


def test_episodes_that_fail_are_left_out_unless_they_are_wanted(tmp_path):
    teacher = recording.Teacher("idle", settings(critic_sees="state"), lambda obs, task: np.zeros((1, 2), np.float32))
    said = []
    with refused("demos.nothing-made"):
        recording.record(teacher, None, 3, 0, tmp_path / "none", silent, said.append)
    assert said == ["3 of 3 episodes failed and are left out (keep them with --keep-failures)"]
    kept = recording.record(teacher, None, 3, 0, tmp_path / "all", silent, silent, keeps_failures=True)
    assert [told.success for told in kept.manifest.episodes] == [False] * 3


@pytest.mark.parametrize(("env", "goals"), [(Metaworld(tasks=("reach-v3", "drawer-close-v3")), 5), (Arm(), 10)])
def test_the_suites_scripts_do_their_tasks_by_the_whole_state(env, goals):
    suite = SuiteRef(env, 0)
    scripts = [suite.open().script(task) for task in range(len(env.tasks))]
    result = evaluate(
        lambda obs, task: np.stack([scripts[k](row) for k, row in zip(task, obs[STATE], strict=True)]), suite, goals
    )
    assert result.mean_success == 1.0


@pytest.mark.long
def test_from_a_recording_to_weights_over_a_data_set_of_lerobots(tmp_path):
    pytest.importorskip("pyarrow")
    recorded(tmp_path / "demos", 6)
    assert demos("export", "demos", "--out", "dataset", cwd=tmp_path, PYTHONPATH=with_pyarrow()).returncode == 0
    done = demos("import", "dataset", "--out", "again", "--size", SIZE, cwd=tmp_path, PYTHONPATH=with_pyarrow())
    assert "again: 6 episodes" in done.stdout, done.stderr
    words = ("--config", config(tmp_path), "--steps", 4, "--measure-every", 2, "--batch-size", 4)
    done = demos("fit", "--demos", "again", "--out", "w.safetensors", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "best at step" in done.stdout
    assert "the weights: w.safetensors (network.encoder.weights)" in done.stdout
    assert f"the policy: {tmp_path}/runs/fit-w/slots/0 (trainer play, evaluate)\n" in done.stdout
    done = demos("fit", "--demos", "again", "--out", "w.safetensors", *words, "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert [row["step"] for row in told["rows"]] == [2, 4]


def with_pyarrow():
    """Wherever this process has it from."""
    import pyarrow as pa

    return f"{PYTHONPATH}:{Path(pa.__file__).parents[1]}"


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "code", "wrong"),
    [
        (["import", "nowhere", "--out", "x"], 2, "demos.no-dataset"),
        (["fit", "--demos", "nowhere", "--out", "w.safetensors"], 2, "demos.none"),
        (["fit", "--demos", "demos", "--out", "w.safetensors"], 2, "demos.out-without-pictures"),
        (["record", "--out", "x", "--set", 'env={"name":"gymnasium","id":"CartPole-v1"}'], 2, "record.no-script"),
        (["record", "--out", "x", "--policy", "nowhere"], 2, "play.no-policy"),
    ],
)
def test_a_mistake_is_one_sentence_and_changes_nothing(tmp_path, words, code, wrong):
    recorded(tmp_path / "demos", 3)
    before = sorted(tmp_path.rglob("*"))
    done = demos(*words, cwd=tmp_path)
    assert done.returncode == code, done.stderr
    assert f"[{wrong}]" in done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(tmp_path.rglob("*")) == before
