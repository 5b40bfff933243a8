"""Behaviour cloning: what it learns from, what it holds out, and what it leaves."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

import safetensors
import torch
from demos import SIZE, all_of, recorded, silent, training
from refused import refused

from trainer.commands.demos import fit
from trainer.config.network import ARCHES
from trainer.config.section import TrainingSection, resolve
from trainer.demos import fitting
from trainer.demos.matching import rows_of
from trainer.demos.recording import record, trained
from trainer.envs.spaces import IMAGE, ArraySpec, Box, Spaces, drawn_actions
from trainer.envs.step import VectorSpec
from trainer.envs.suite import spaces_of, suite_of
from trainer.envs.vector import VectorEnv
from trainer.errors import ConfigError
from trainer.evaluation.playable import evaluate_checkpoint, find_playable
from trainer.nets.encoders.base import encoder_for
from trainer.training.run import advance, fresh, row

pytestmark = pytest.mark.trainer
ENV = {"name": "spots:Spots", "observation": "both", "image_size": SIZE}
NETWORK = {"encoder": {"arch": "spots:Eye"}, "actor_hidden": [16]}


@pytest.fixture(scope="module")
def demos(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("demos") / "out", 30)


def cloning_of(demos, asked, out=None, *, steps=4, every=2, **settings):
    return fitting.cloning_of(asked, demos, out, steps=steps, every=every, **settings)


def begun(asked):
    return fresh(asked, torch.device("cpu"), VectorEnv(VectorSpec(suite_of(asked), asked.num_envs, asked.seed)))


def config(folder, **changed):
    value = {"env": ENV, "network": NETWORK, "algorithm": "sac", "device": "cpu", **changed}
    (folder / "training.json").write_text(json.dumps(value))
    return folder / "training.json"


def test_every_tenth_episode_is_held_out_and_the_best_policy_is_kept(demos):
    run = begun(cloning_of(demos, training(), steps=40, learning_rate=1e-2))
    algorithm = run.algorithm
    lengths = [told.actions for told in demos.manifest.episodes]
    assert len(algorithm._held_out.whole(0)) == sum(lengths[1::10])
    assert len(algorithm._shown.whole(0)) == sum(lengths) - sum(lengths[1::10])
    told = []
    for _ in range(12):
        for _ in range(4):
            advance(run)
        told.append(row(run)["tasks"]["touch"]["held_out"])
        kept = {name: tensor.clone() for name, tensor in algorithm.policy.state_dict().items()}
        net = algorithm.net.state_dict()
        is_best = all(torch.equal(kept[name], tensor) for name, tensor in net.items())
        assert is_best == (told[-1] == min(told) and told.count(told[-1]) == 1)
    assert min(told) < told[0] / 2
    run.collector.envs.close()


@pytest.mark.long
def test_the_command_leaves_a_policy_and_an_encoder_for_the_next_one(demos, tmp_path, monkeypatch, capsys):
    places = {"config": config(tmp_path), "run_dir": tmp_path / "run"}
    fit(demos.folder, tmp_path / "made/w.safetensors", steps=4, batch_size=4, measure_every=2, as_json=True, **places)
    told = json.loads(capsys.readouterr().out)
    assert [one["step"] for one in told["rows"]] == [2, 4]
    assert (told["about"]["arch"], told["policy"]) == ("spots:Eye", str(tmp_path / "run/slots/0"))
    assert "weights_sha256" not in told["about"]
    with safetensors.safe_open(tmp_path / "made/w.safetensors", "pt") as file:
        assert json.loads(file.metadata()["about"]) == told["about"]
    found = find_playable(str(tmp_path / "run"), None, "cpu")
    nets = {**NETWORK, "encoder": {"arch": "spots:Eye", "weights": str(tmp_path / "made/w.safetensors")}}
    wanted = training(nets)
    encoder = encoder_for(IMAGE, spaces_of(wanted).obs[IMAGE], wanted.network, torch.Generator().manual_seed(9))
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, found.policy.net.encoders[IMAGE].state_dict()[name])
    again = cloning_of(demos, wanted)
    assert not again.network.encoder.is_frozen
    # Where a licence is known of what it begins with, it stands in what it leaves, too.
    monkeypatch.setitem(ARCHES, "spots:Eye", replace(ARCHES["impala"], weights=ARCHES["timesformer"].weights))
    places = {"config": config(tmp_path, network=nets), "run_dir": tmp_path / "again"}
    fit(demos.folder, tmp_path / "second.safetensors", steps=2, batch_size=4, measure_every=2, as_json=True, **places)
    about = json.loads(capsys.readouterr().out)["about"]
    assert about["weights_sha256"] == hashlib.sha256((tmp_path / "made/w.safetensors").read_bytes()).hexdigest()
    assert "CC-BY-NC 4.0: no commercial use" in about["weights_licence"]


@pytest.mark.long
def test_a_policy_of_the_state_alone_imitates_and_does_the_task(demos, tmp_path):
    asked = {"env": {"name": "spots:Spots"}, "network": {"actor_hidden": [32]}}
    places = {"config": config(tmp_path, **asked), "run_dir": tmp_path / "run"}
    fit(demos.folder, None, steps=600, batch_size=64, learning_rate=5e-3, measure_every=300, **places)
    result = evaluate_checkpoint(tmp_path / "run", goals=20, goal_seed=None, device="cpu", num_workers=0)
    assert result.evaluation.mean_success >= 0.8
    assert (tmp_path / "run/slots/0/attempts/0/final.safetensors").is_file()


def test_what_failed_is_not_imitated(demos):
    def judged(*success):
        block = demos.manifest.blocks[0]
        episodes = tuple(
            told.model_copy(update={"success": value}) for told, value in zip(block.episodes, success, strict=False)
        )
        return demos.manifest.model_copy(update={"blocks": (block.model_copy(update={"episodes": episodes}),)})

    spaces = spaces_of(training())
    told = judged(True, False, None, False)
    wanted = sum(told.episodes[number].actions + 1 for number in (0, 2))
    assert rows_of(told, spaces, imitates=True).tolist() == [wanted]
    with refused("demos.too-few-episodes", shown=1, task="touch"):
        rows_of(judged(True, False), spaces, imitates=True)


def test_what_something_else_shows_or_does_is_refused_with_the_way_out(demos):
    with refused("demos.other-pictures"):
        cloning_of(demos, training(cameras=["above", "aside"]))
    with refused("algorithm.no-demos"):
        training().changed(algorithm={"name": "cloning"})
    spaces = spaces_of(training())
    with pytest.raises(ConfigError, match="choose another algorithm than cloning"):
        rows_of(demos.manifest, Spaces(spaces.obs, Box(5), spaces.tasks, 20), imitates=True)
    other = Spaces({**spaces.obs, "state": ArraySpec((7,))}, spaces.action, spaces.tasks, 20)
    with refused("demos.other-observations", key="state", wanted="(7,)"):
        rows_of(demos.manifest, other, imitates=True)
    with refused("demos.no-actions"):
        rows_of(demos.manifest.model_copy(update={"spaces": None, "told": ()}), spaces, imitates=True)


def eyes(*names, stack=2):
    """A training of pictures by these names, so many of each."""
    env = {"name": "gymnasium", "id": "odd_envs:Eyes", "kwargs": {"names": list(names), "length": 4}, "image_size": 16}
    value = {"env": {**env, "frame_stack": stack}, "network": NETWORK, "algorithm": "sac"}
    return resolve(TrainingSection.model_validate(value))


@pytest.mark.parametrize(("names", "stack"), [(("eye",), 2), (("image", "wrist"), 1)])
def test_pictures_by_any_name_are_imitated(tmp_path, names, stack):
    asked, rng = eyes(*names, stack=stack), np.random.default_rng(0)
    policy = SimpleNamespace(spec=SimpleNamespace(spaces=spaces_of(asked)))
    found = SimpleNamespace(
        name="trained", env=asked.env, goal_seed=0, policy=policy, act=lambda obs, task: drawn_actions(rng, Box(1), 1)
    )
    shown = record(trained(found, (), None), None, 3, 0, tmp_path / "demos", silent, silent)
    run = begun(cloning_of(shown, asked, batch_size=4))
    before = {name: tensor.clone() for name, tensor in run.algorithm.net.encoders.state_dict().items()}
    for _ in range(3):
        advance(run)
    after = run.algorithm.net.encoders.state_dict()
    for name in names:
        assert any(not torch.equal(tensor, before[key]) for key, tensor in after.items() if name in key)
    run.collector.envs.close()


def test_an_imitator_sees_as_a_policy_sees(demos):
    """Its batches are the frames that a policy would have seen, and what was done then."""
    run = begun(cloning_of(demos, training(frame_stack=2, observation="cameras")))
    first = all_of(demos)[0][1]
    batch = run.algorithm._shown.transitions(0, run.algorithm._shown.whole(0)[: len(first["action"])])
    before = np.concatenate([first[IMAGE][:1], first[IMAGE][:-2]])
    assert np.array_equal(batch.obs[IMAGE], np.concatenate([before, first[IMAGE][:-1]], axis=1))
    assert np.array_equal(batch.action, first["action"])
    run.collector.envs.close()
