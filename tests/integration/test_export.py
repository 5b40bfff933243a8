"""A policy in one file: each kind does what the policy does, in a process that has nothing of ours, or is not there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from daemons import WORK_S
from suites import state_of

pytest.importorskip("metaworld")

from point_run import PointRun
from published import publish
from refused import refused

from syncd import store
from trainer.checkpoints.checkpoint import MANIFEST, NETS, read_manifest
from trainer.cli import main
from trainer.config.section import TrainingSection, resolve
from trainer.evaluation.playable import find_playable, of_checkpoint
from trainer.exporting import export as exporting
from trainer.exporting import export as files
from trainer.exporting.card import TOLERANCE, Card
from trainer.exporting.export import export

pytestmark = pytest.mark.trainer
ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = [kind.suffix for kind in files.KINDS]
PAGE = (ROOT / "docs/watching.md").read_text()


@pytest.fixture
def run(tmp_path):
    """A run folder with one checkpoint, of step 100."""
    run = PointRun(tmp_path / "run")
    run.checkpoints(1)
    return run


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    """`trainer WORDS`, typed in `tmp_path`: (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run_it(*words):
        monkeypatch.setattr(sys, "argv", ["trainer", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        return end.value.code or 0, *capsys.readouterr()

    return run_it


def snippet(title):
    """The Python under a title of docs/watching.md."""
    section = re.split(r"^##+ ", PAGE, flags=re.MULTILINE)
    (found,) = [part for part in section if part.startswith(f"{title}\n")]
    return re.findall(r"```python\n(.*?)```", found, re.DOTALL)[0]


#: What follows the page's lines: nothing of ours was loaded, and what they say of actions is printed.
AFTERWARDS = """
import sys
ours = {"anchorleg", "trainer", "syncd", "orchestrator"} & set(sys.modules)
assert not ours, ours
golden = card["golden"]
actions = {}
for rows in (1, len(golden["task"])):
    observation = np.array(golden["observation"][:rows], np.float32)
    actions[rows] = act(observation, np.array(golden["task"][:rows])).tolist()
print(json.dumps({"golden": golden, "actions": actions, "tasks": tasks}))
"""


def as_the_page_says(title, folder):
    """Run the page's lines for one kind of file, and its loop in Meta-World: (what the loop prints, the actions)."""
    code = snippet(title) + snippet("In Meta-World") + AFTERWARDS
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=WORK_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[0], json.loads(done.stdout.splitlines()[-1])


def actions_of(path, observation, task):
    """What the runtime that the file is made for computes, in this process."""
    if path.suffix == ".onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return session.run(["action"], {"observation": observation, "task": task})[0]
    space = {}
    os.chdir(path.parent)
    exec(snippet({".pt2": "torch", ".safetensors": "numpy"}[path.suffix]), space)
    return space["act"](observation, task)


def observations(tasks, count=40):
    rng = np.random.default_rng(3)
    return rng.uniform(-1, 1, (count, 39)).astype(np.float32), np.arange(count, dtype=np.int64) % tasks


@pytest.mark.long
@pytest.mark.parametrize(("title", "name"), [("ONNX", "onnx"), ("torch", "pt2"), ("numpy", "safetensors")])
def test_the_pages_lines_run_each_file_without_anything_of_ours(tmp_path, run, typed, title, name):
    code, output, errors = typed("export", run.job.run_dir, "--out", f"policy.{name}")
    assert (code, errors) == (0, "")
    assert output.splitlines()[-1] == f"the policy: policy.{name}"
    ending, value = as_the_page_says(title, tmp_path)
    assert re.fullmatch(r"reach-v3: (not solved|solved at step \d+)", ending)
    policy = find_playable(str(run.job.run_dir), None, "cpu")
    golden = value["golden"]
    wanted = policy.act(state_of(np.array(golden["observation"], np.float32)), np.array(golden["task"], np.int32))
    assert np.abs(np.array(golden["action"]) - wanted).max() == 0
    for rows, actions in value["actions"].items():
        assert np.abs(np.array(actions) - wanted[: int(rows)]).max() <= TOLERANCE
    assert value["tasks"] == list(policy.tasks)
    assert {0, 1, 2} == set(golden["task"])


@pytest.mark.parametrize(
    ("section", "wrong"),
    [
        ({"preset": "arm-sac", "algorithm": "drqv2"}, "export.trunk-or-frozen"),
        ({"preset": "reach-pixels"}, "export.sees-pictures"),
    ],
)
def test_a_policy_with_a_trunk_or_that_sees_is_refused_in_a_sentence(tmp_path, section, wrong):
    publish(tmp_path / "mirror", training=resolve(TrainingSection(**section)))
    policy = find_playable(str(tmp_path / "mirror"), None, "cpu")
    with refused(wrong):
        export(policy, tmp_path / "policy.onnx")
    assert not (tmp_path / "policy.onnx").exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "sac", "td3"])
def test_the_actor_of_every_algorithm_comes_through(tmp_path, monkeypatch, algorithm, suffix):
    """PPO's brings its observations to a scale, and clips its actions."""
    monkeypatch.chdir(tmp_path)
    training = resolve(
        TrainingSection(algorithm=algorithm, tasks=("reach-v3", "push-v3"), buffer_size=1000)
        if algorithm in {"sac", "td3"}
        else TrainingSection(algorithm=algorithm, tasks=("reach-v3", "push-v3"))
    )
    publish(tmp_path / "mirror", training=training)
    policy = find_playable(str(tmp_path / "mirror"), None, "cpu")
    done = export(policy, tmp_path / f"policy{suffix}")
    assert done.deviation <= TOLERANCE
    assert done.card.scales_observation == (algorithm in {"ppo", "a2c"})
    obs, task = observations(2)
    obs *= 20
    assert np.abs(actions_of(done.path, obs, task) - policy.act(state_of(obs), task)).max() <= TOLERANCE


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_a_file_says_of_itself(tmp_path, run, suffix):
    (run.job.attempt_dir / "evaluations.jsonl").write_text('{"step": 100, "mean_success": 0.5, "goals_per_task": 2}\n')
    out = tmp_path / f"policy{suffix}"
    card = export(find_playable(str(run.job.run_dir), None, "cpu"), out).card
    module = exporting.of_policy(find_playable(str(run.job.run_dir), None, "cpu").policy)
    text, _ = files.kind_of(out).play(out, module, *observations(3))
    assert Card.model_validate_json(text) == card
    source = card.source
    assert (source.run_id, source.slot, source.attempt, source.step) == (run.job.run_id, 0, 0, 100)
    assert (source.version, source.score) == (None, store.Score(step=100, mean_success=0.5, goals_per_task=2))
    assert source.trained_with["torch"]
    assert (card.observation.shape, card.action.shape, card.action.low) == ((39,), (4,), (-1.0,) * 4)
    assert card.tasks == run.training.env.tasks
    data = out.read_bytes()
    for secret in (str(ROOT), str(tmp_path), "site-packages", ".py"):
        assert secret.encode() not in data, secret


@pytest.mark.parametrize(
    ("words", "code", "wrong"),
    [
        (["run", "--out", "policy.h5"], 2, "export.out-suffix"),
        (["run", "--out", "folder.onnx"], 2, "export.out-is-folder"),
        (["empty"], 2, "play.no-policy"),
        (["run/slots/0", "--slot", "0"], 2, "play.slot-of-no-run"),
        (["run", "--slot", "7"], 2, "play.no-policy"),
        (["run", "--best"], 2, "checkpoint.never-evaluated"),
        (["damaged"], 3, "checkpoint.all-damaged"),
        (["tomorrow"], 3, "checkpoint.not-played"),
        (["run", "--out", "file/policy.pt2"], 5, "output.unwritable-file"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence_and_nothing_is_written(tmp_path, run, typed, words, code, wrong):
    (tmp_path / "folder.onnx").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    for name in ("damaged", "tomorrow"):
        PointRun(tmp_path / name).checkpoints(1)
    nets = next((tmp_path / "damaged").glob(f"slots/0/attempts/0/checkpoints/*/{NETS}"))
    nets.write_bytes(nets.read_bytes()[:-1])
    folder = next((tmp_path / "tomorrow").glob("slots/0/attempts/0/checkpoints/*"))
    manifest = read_manifest(folder)
    changed = manifest.model_copy(update={"training": {**manifest.training, "of_tomorrow": 1}}).sealed()
    (folder / MANIFEST).write_text(changed.model_dump_json())
    before = sorted(tmp_path.rglob("*"))
    exit_code, _, errors = typed("export", *words)
    assert exit_code == code, errors
    assert f"[{wrong}]" in errors
    assert len(errors.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_without_onnx_one_sentence_says_what_to_install(tmp_path, run, typed, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    code, _, errors = typed("export", "run", "--out", "new/policy.onnx")
    assert code == 2
    assert errors == "trainer: onnx is not installed here: in Anchorleg's checkout, run pip install '.[export]'\n"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_acts_otherwise_is_not_put_there(tmp_path, run, monkeypatch, suffix):
    """One weight is other than it should be: what was there before stays, and nothing lies beside it."""
    out = tmp_path / f"policy{suffix}"
    out.write_text("the one before")
    kind = files.kind_of(out)

    def spoiled(module, card):
        import copy

        import torch

        module = copy.deepcopy(module)
        with torch.no_grad():
            module.layers[-1].bias[0] += 0.01
        return kind.make(module, card)

    monkeypatch.setattr(exporting, "kind_of", lambda _: files.FileKind(suffix, spoiled, kind.play))
    with refused("export.acts-otherwise"):
        export(of_checkpoint(run.job.run_dir, "cpu"), out)
    assert out.read_text() == "the one before"
    assert list(tmp_path.glob(".*")) == []


def test_a_policy_that_is_not_finite_is_not_exported(tmp_path, run):
    policy = of_checkpoint(run.job.run_dir, "cpu")
    policy.policy.net.body.layers[0].bias[0] = float("nan")
    with refused("export.not-finite"):
        export(policy, tmp_path / "policy.safetensors")
    assert not (tmp_path / "policy.safetensors").exists()
