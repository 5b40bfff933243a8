"""What demonstrations teach: the loss is R3M's, the pictures are what a policy sees, and what is kept is worth it."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")

import safetensors
import torch
from demos import SIZE, all_of, episode, recorded, silent, training
from leftovers import unfinished
from spots import Eye

from anchorleg.job import Job
from trainer.commands.demos import fit
from trainer.config.encoders import ARCHES
from trainer.config.section import TrainingSection, resolve
from trainer.demos import begin, contrast, footage
from trainer.demos import fit as loop
from trainer.demos.fit import run
from trainer.demos.footage import BatchNeed, Footage
from trainer.demos.matching import names_of
from trainer.demos.recording import record, trained
from trainer.demos.store import BLOCKS, DemoEpisode, Demos, DemosManifest, DemoSource, DemosWriter
from trainer.envs.frames import FrameStacks
from trainer.envs.spaces import IMAGE, PRIVILEGED, ArraySpec, Box, Spaces, drawn_actions
from trainer.envs.suite import spaces_of
from trainer.errors import ConfigError, NotFiniteError, OtherIdentityError, OutOfMemoryError, UnreadCheckpointError
from trainer.evaluation.checkpoints import evaluate_checkpoint
from trainer.evaluation.playable import find_playable
from trainer.exporting.export import export
from trainer.exporting.module import why_not
from trainer.machine.host import Host
from trainer.nets.encoders.base import encoder_for
from trainer.nets.kept import kept_bytes

pytestmark = pytest.mark.trainer


@pytest.fixture(scope="module")
def demos(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("demos") / "out", 60)


def fitted(demos, folder, *, by_actions, steps, seed=0, every=50, rate=1e-3, **more):
    asked = training(seed=seed, **more)
    learner = begin.learner_of(demos, asked, by_actions=by_actions)
    plan = begin.plan_of(demos, asked, learner, steps=steps, batch_size=32, learning_rate=rate, every=every)
    return run(Job.standalone(folder), learner, plan, silent, silent), asked


def upstreams(features, films, negatives):
    """facebookresearch/r3m, trainer.py, "Within Video TCN Loss", with the negatives of the same film left out."""
    eps = 1e-8
    es0, es1, es2 = features.unbind(1)

    def sim(a, b):
        return -torch.linalg.norm(a - b, dim=-1)

    def far(e):
        parts = [torch.exp(sim(e, e[order])) * (films[order] != films) for order in negatives]
        return torch.stack(parts, -1).sum(-1)

    s02, s12, s01 = sim(es2, es0), sim(es2, es1), sim(es1, es0)
    one = -torch.log(eps + torch.exp(s12) / (eps + torch.exp(s02) + torch.exp(s12) + far(es2)))
    two = -torch.log(eps + torch.exp(s01) / (eps + torch.exp(s01) + torch.exp(s02) + far(es0)))
    return ((one + two) / 2).mean()


def test_nothing_is_new_in_a_film_of_one_frame():
    frames = np.zeros((3, 3, 4, 4), np.uint8)
    frames[2] = 8
    assert contrast._news(frames[:1]).tolist() == [0.0]
    assert contrast._news(frames).tolist() == [0.0, 0.0, 1.0]


def test_the_loss_is_upstreams():
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(16, 3, 8, generator=draw)
    films = torch.randint(5, (16,), generator=draw)
    negatives = torch.stack([torch.randperm(16, generator=draw) for _ in range(3)])
    ours = contrast.contrast(features, films, negatives)
    assert float(ours) == pytest.approx(float(upstreams(features, films, negatives)), rel=1e-5)


def test_the_loss_is_small_where_time_is_a_line_and_films_lie_apart():
    line = torch.arange(3.0) * 5
    films = torch.arange(4)
    features = torch.stack([torch.stack([line, torch.full((3,), 100.0 * film)], -1) for film in films])
    negatives = torch.stack([films.roll(1)] * 3)
    assert float(contrast.contrast(features, films, negatives)) < 0.02
    backwards = features[:, [0, 2, 1]]  # the last frame in the middle
    assert float(contrast.contrast(backwards, films, negatives)) > 2


def test_three_frames_of_one_film_are_drawn_in_their_order(demos):
    lesson = begin.learner_of(demos, training(), by_actions=False)
    films, places, negatives = lesson._draw(np.random.default_rng(0), 64, [3, 5, 8])
    begins = np.cumsum([0, *(told.frames for told in demos.manifest.episodes)])
    assert set(films.tolist()) == {3, 5, 8}
    assert (np.diff(places, axis=1) > 0).all()
    assert (places[:, 0] >= begins[films]).all()
    assert (places[:, 2] < begins[films + 1]).all()
    assert [sorted(row) for row in negatives.tolist()] == [list(range(64))] * 3


def films_of(folder, *all_frames, success=None):
    plan = DemosManifest(source=DemoSource(kind="films", name="x", asked=""), cameras=("film",), frame=(3, SIZE, SIZE))
    writer = DemosWriter(folder, plan)
    for number, frames in enumerate(all_frames):
        writer.add(DemoEpisode(name=str(number), frames=len(frames), fps=10.0, success=success), {IMAGE: frames})
    return writer.finish()


def test_what_an_import_that_was_killed_left_of_a_block_goes_with_the_next_block(tmp_path):
    (tmp_path / "films" / BLOCKS).mkdir(parents=True)
    dead, living = unfinished(tmp_path / "films" / BLOCKS, "000000.safetensors")
    films_of(tmp_path / "films", episode(0, 6))
    assert (dead.exists(), living.exists()) == (False, True)


def test_no_frame_is_drawn_that_shows_nothing_new_and_a_film_without_motion_teaches_nothing(tmp_path):
    moving = [episode(seed, 6) for seed in range(5)]
    resting = [np.concatenate([frames, np.repeat(frames[-1:], 20, axis=0)]) for frames in moving]
    films = films_of(tmp_path / "films", *resting)
    lesson = begin.learner_of(films, training(observation="cameras"), by_actions=False)
    drawn, places, _ = lesson._draw(np.random.default_rng(0), 200, list(range(5)))
    assert (places[:, 2] - 26 * drawn.numpy() < 6).all()
    assert set((places - 26 * drawn.numpy()[:, None]).ravel().tolist()) == set(range(6))
    still = films_of(tmp_path / "still", *(np.repeat(frames[:1], 9, axis=0) for frames in moving), moving[0])
    with pytest.raises(ConfigError, match="in 1 of 6 films something moves"):
        begin.learner_of(still, training(observation="cameras"), by_actions=False)


@pytest.mark.parametrize(("stack", "stride", "is_clip"), [(1, 1, False), (3, 1, False), (3, 2, False), (4, 3, True)])
def test_a_frame_is_seen_with_those_before_it_as_a_policy_sees_it(demos, stack, stride, is_clip):
    frame = demos.manifest.frame
    shape = (stack, *frame) if is_clip else (stack * frame[0], *frame[1:])
    spec = ArraySpec(shape, "uint8", 0, 255, stack, stride)
    seen = Footage.of(demos, None)
    spaces = Spaces({IMAGE: spec}, Box(2), ("touch",), 20)
    at = 0
    for told, arrays in all_of(demos)[:5]:
        stacks = FrameStacks(spaces, 1)
        expected = [stacks.begin({IMAGE: arrays[IMAGE][:1]})[IMAGE]]
        for image in arrays[IMAGE][1:]:
            led_to, _ = stacks.push({IMAGE: image[None]}, {IMAGE: image[None]}, np.array([False]))
            expected.append(led_to[IMAGE])
        assert np.array_equal(seen.seen(IMAGE, spec, np.arange(at, at + told.frames)), np.concatenate(expected))
        at += told.frames


def goals_told(encoder, demos):
    """R² of the goal's place by a line of the encoder's features: learned from the even episodes, asked of the odd."""
    features, goals, numbers = [], [], []
    for number, (_, arrays) in enumerate(all_of(demos)):
        with torch.no_grad():
            features.append(encoder(torch.from_numpy(arrays[IMAGE])).numpy().astype(np.float64))
        goals.append(arrays[PRIVILEGED][:, 2:])
        numbers.append(np.full(len(goals[-1]), number))
    x, y, odd = np.concatenate(features), np.concatenate(goals), np.concatenate(numbers) % 2 == 1
    middle, spread = x[~odd].mean(0), x[~odd].std(0) + 1e-6
    x = np.concatenate([(x - middle) / spread, np.ones((len(x), 1))], 1)
    line = np.linalg.solve(x[~odd].T @ x[~odd] + 1.0 * np.eye(x.shape[1]), x[~odd].T @ y[~odd])
    off = ((y[odd] - x[odd] @ line) ** 2).sum()
    return 1 - off / ((y[odd] - y[odd].mean(0)) ** 2).sum()


def test_an_imitator_sees_the_goal_in_episodes_that_it_never_saw_better_than_an_untaught_encoder(demos, tmp_path):
    others = recorded(tmp_path / "others", 200, seed=1000)
    done, asked = fitted(demos, tmp_path / "run", by_actions=True, steps=400)
    untaught = begin.learner_of(demos, asked, by_actions=True).encoder
    taught = begin.learner_of(demos, asked, by_actions=True).encoder
    taught.load_state_dict(done.best)
    assert goals_told(taught, others) > max(0.5, goals_told(untaught, others) + 0.3)
    assert done.best_row.held_out < done.rows[0].held_out / 2


def test_films_alone_teach_an_encoder_what_comes_before_what(demos, tmp_path):
    others = recorded(tmp_path / "others", 60, seed=1000)
    done, asked = fitted(demos, tmp_path / "run", by_actions=False, steps=300)
    assert done.best_row.held_out < done.rows[0].held_out - 0.2
    encoder = begin.learner_of(demos, asked, by_actions=False).encoder
    untaught = goals_told(encoder, others)
    encoder.load_state_dict(done.best)
    assert goals_told(encoder, others) > max(0.5, untaught + 0.3)
    assert math.isnan(done.rows[0].loss)


@pytest.mark.parametrize("by_actions", [True, False])
def test_what_is_left_is_a_file_for_the_training_that_it_was_made_for(demos, tmp_path, by_actions):
    more = {"frame_stack": 2, "observation": "cameras"}
    done, asked = fitted(demos, tmp_path / "run", by_actions=by_actions, steps=4, every=2, **more)
    about = begin.write_weights(tmp_path / "made" / "w.safetensors", done, demos, asked)
    assert about["arch"] == "spots:Eye"
    with safetensors.safe_open(tmp_path / "made" / "w.safetensors", "pt") as file:
        assert set(file.keys()) == {
            "convs.0.weight",
            "convs.0.bias",
            "convs.2.weight",
            "convs.2.bias",
            "linear.weight",
            "linear.bias",
        }
        assert file.metadata()["about"].startswith('{"arch": "spots:Eye"')
    nets = {"encoder": {"arch": "spots:Eye", "weights": str(tmp_path / "made" / "w.safetensors")}}
    trained = training(nets, **more)
    encoder = encoder_for(IMAGE, spaces_of(trained).obs[IMAGE], trained.network, torch.Generator().manual_seed(9))
    assert isinstance(encoder, Eye)
    for name, tensor in encoder.state_dict().items():
        assert torch.equal(tensor, done.best[name])


def test_a_fit_begins_with_the_weights_that_its_training_names_and_teaches_them(demos, tmp_path):
    done, asked = fitted(demos, tmp_path / "run", by_actions=True, steps=4, every=2)
    begin.write_weights(tmp_path / "w.safetensors", done, demos, asked)
    nets = {"encoder": {"arch": "spots:Eye", "weights": str(tmp_path / "w.safetensors")}}
    again = begin.learner_of(demos, training(nets), by_actions=True)
    assert all(torch.equal(again.encoder.state_dict()[name], tensor) for name, tensor in done.best.items())
    assert all(parameter.requires_grad for parameter in again.encoder.parameters())


def test_what_a_fit_began_with_stays_with_what_it_leaves_sum_and_licence(demos, tmp_path, monkeypatch):
    done, asked = fitted(demos, tmp_path / "run", by_actions=True, steps=4, every=2)
    assert not begin.begun_with(asked)
    assert "weights_sha256" not in begin.write_weights(tmp_path / "first.safetensors", done, demos, asked)
    published = replace(ARCHES["impala"], weights=ARCHES["timesformer"].weights)
    monkeypatch.setitem(ARCHES, "spots:Eye", published)
    nets = {"encoder": {"arch": "spots:Eye", "weights": str(tmp_path / "first.safetensors")}}
    done, asked = fitted(demos, tmp_path / "again", by_actions=True, steps=4, every=2, network=nets)
    sha256 = hashlib.sha256((tmp_path / "first.safetensors").read_bytes()).hexdigest()
    begun = begin.begun_with(asked)
    (tmp_path / "first.safetensors").unlink()
    about = begin.write_weights(tmp_path / "second.safetensors", done, demos, asked, begun)
    assert about["weights_sha256"] == sha256
    assert "CC-BY-NC 4.0: not for commercial use" in about["weights_licence"]
    with safetensors.safe_open(tmp_path / "second.safetensors", "pt") as file:
        assert json.loads(file.metadata()["about"]) == about


def test_the_command_says_the_licence_of_what_it_begins_with(demos, tmp_path, monkeypatch, capsys):
    done, asked = fitted(demos, tmp_path / "run", by_actions=True, steps=2, every=2)
    begin.write_weights(tmp_path / "first.safetensors", done, demos, asked)
    published = replace(ARCHES["impala"], weights=ARCHES["timesformer"].weights)
    monkeypatch.setitem(ARCHES, "spots:Eye", published)
    monkeypatch.setattr(Job, "listen", lambda job: None)
    encoder = {"arch": "spots:Eye", "weights": str(tmp_path / "first.safetensors")}
    env = {"name": "spots:Spots", "observation": "both", "image_size": SIZE}
    config = {"env": env, "network": {"encoder": encoder, "actor_hidden": [8]}, "algorithm": "sac"}
    (tmp_path / "training.json").write_text(json.dumps(config))
    out, places = tmp_path / "second.safetensors", {"config": tmp_path / "training.json", "run_dir": tmp_path / "again"}
    fit(demos.folder, out, steps=2, batch_size=4, measure_every=2, as_json=True, **places)
    told = capsys.readouterr()
    assert "the published weights of spots:Eye: CC-BY-NC 4.0: not for commercial use" in told.err
    assert "CC-BY-NC 4.0" in json.loads(told.out)["about"]["weights_licence"]


def test_what_failed_is_not_imitated_and_is_still_a_film(tmp_path):
    films = films_of(tmp_path / "films", *(episode(seed, 6) for seed in range(4)), success=False)
    assert begin.learner_of(films, training(observation="cameras"), by_actions=False).name == "time"
    with pytest.raises(ConfigError, match="there are 0 usable episodes"):
        begin.learner_of(
            Demos(films.folder, with_actions(films.manifest)), training(observation="cameras"), by_actions=True
        )


def with_actions(manifest):
    spaces = spaces_of(training(observation="cameras"))
    return manifest.model_copy(update={"spaces": spaces.as_json()})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"observation": "state"}, "this training sees no pictures: set env.observation to cameras, both or clips"),
        ({"image_size": 64}, r"has 3 x 32 x 32 numbers \(above\), and the training's 3 x 64 x 64, three a camera"),
        ({"cameras": ["above", "aside"]}, "and the training's 6 x 32 x 32"),
    ],
)
def test_demonstrations_that_show_something_else_are_refused(demos, more, words):
    with pytest.raises(ConfigError, match=words):
        begin.must_fit(demos.manifest, spaces_of(training_of(more)), by_actions="observation" not in more)


def training_of(more):
    if more.get("observation") == "state":
        return resolve(TrainingSection.model_validate({"env": {"name": "spots:Spots"}, "algorithm": "sac"}))
    return training(**more)


def test_an_encoder_of_what_is_not_seen_is_refused(demos):
    with pytest.raises(ConfigError, match=r"^training.network.encoders.picture: the policy sees no 'picture'"):
        fitted(demos, None, by_actions=True, steps=1, network={"encoders": {"picture": "nature"}})


def test_other_actions_and_rows_are_refused_with_the_way_out(demos):
    spaces = spaces_of(training())
    with pytest.raises(ConfigError, match="--without-actions"):
        begin.must_fit(demos.manifest, Spaces(spaces.obs, Box(5), spaces.tasks, 20), by_actions=True)
    obs = {**spaces.obs, "state": ArraySpec((7,))}
    with pytest.raises(
        ConfigError, match=r"sees state \(7,\), and the demonstrations have \(2,\): set env.observation"
    ):
        begin.must_fit(demos.manifest, Spaces(obs, spaces.action, spaces.tasks, 20), by_actions=True)


def test_memory_that_is_not_there_is_said_before_it_is_taken(demos):
    with pytest.raises(OutOfMemoryError, match=r"frames take .* and 0 B of memory are free for them: import them with"):
        Footage.of(demos, 2**20)


@pytest.mark.parametrize(
    ("size", "each", "words"),
    [
        (100, 2**20, r"a batch of 100 takes 100 MiB, and 30 MiB of .*lower --batch-size from 100 to 2[0-9] at most$"),
        (100, 2**30, r"no --batch-size fits; choose a smaller network\.encoder\.arch"),
        (1, 1, r"of memory are free for them: import them with a --size of at most \d+ % of this one"),
    ],
)
def test_a_batch_that_memory_cannot_learn_from_is_said_with_one_that_it_can(demos, size, each, words):
    free = 2**30 + (30 * 2**20 if each > 1 else demos.manifest.frame_bytes([IMAGE]))
    with pytest.raises(OutOfMemoryError, match=words):
        Footage.of(demos, free, batch=BatchNeed(size, each))


@pytest.mark.parametrize(("by_actions", "frames"), [(True, 1), (False, 3)])
def test_a_fit_asks_for_what_a_batch_keeps_before_it_reads_a_frame(demos, monkeypatch, by_actions, frames):
    spec = spaces_of(training()).obs[IMAGE]
    each = frames * kept_bytes(encoder_for(IMAGE, spec, training().network, None), spec)
    free = 2**30 + demos.manifest.frame_bytes([IMAGE]) + 500 * each
    monkeypatch.setattr(begin, "read_host", lambda: Host("here", 1, None, free))
    assert begin.learner_of(demos, training(), by_actions=by_actions, batch_size=500)
    monkeypatch.setattr(Demos, "read", lambda demos: pytest.fail("it was read"))
    with pytest.raises(OutOfMemoryError, match="lower --batch-size from 501 to 500 at most"):
        begin.learner_of(demos, training(), by_actions=by_actions, batch_size=501)


def eyes(*names, stack=2):
    """A training of pictures by these names, so many of each."""
    env = {"name": "gymnasium", "id": "odd_envs:Eyes", "kwargs": {"names": list(names), "length": 4}, "image_size": 16}
    nets = {"encoder": {"arch": "spots:Eye"}, "actor_hidden": [8]}
    value = {"env": {**env, "frame_stack": stack}, "network": nets, "algorithm": "sac"}
    return resolve(TrainingSection.model_validate(value))


@pytest.mark.parametrize(("names", "stack"), [(("eye",), 2), (("image", "wrist"), 1), (("image", "wrist"), 2)])
def test_pictures_by_any_name_are_imitated(tmp_path, names, stack):
    asked, rng = eyes(*names, stack=stack), np.random.default_rng(0)
    spaces = spaces_of(asked)
    policy = SimpleNamespace(spec=SimpleNamespace(spaces=spaces))
    found = SimpleNamespace(
        name="trained", env=asked.env, goal_seed=0, policy=policy, act=lambda obs, task: drawn_actions(rng, Box(1), 1)
    )
    shown = record(trained(found, (), None), None, 3, 0, tmp_path / "demos", silent, silent)
    assert shown.manifest.frame_bytes(names) == len(names) * shown.manifest.num_frames * 3 * 16 * 16
    learner = begin.learner_of(shown, asked, by_actions=True, batch_size=4)
    assert (learner.encoder is None) == ("image" not in names)
    learner.loss(np.random.default_rng(0), 4).backward()
    for name in names:
        assert any(parameter.grad.any() for parameter in learner.module.encoders[name].parameters())
    before = learner.measure()
    plan = begin.plan_of(shown, asked, learner, steps=30, batch_size=8, learning_rate=1e-2, every=10)
    assert run(Job.standalone(tmp_path / "run"), learner, plan, silent, silent).best_row.held_out <= before
    assert find_playable(str(tmp_path / "run"), None, "cpu").policy.spec.spaces == spaces


def test_an_encoder_is_kept_of_image_alone(tmp_path):
    words = r"no pictures called image, but eye: set env\.observation to cameras or both .*leave --out out"
    with pytest.raises(ConfigError, match=words):
        begin.check_out(tmp_path / "w.safetensors", eyes("eye"), by_actions=True)


def test_the_state_is_the_whole_state_where_nothing_else_is_seen():
    seen = {"eye": ArraySpec((3, 16, 16), "uint8"), "state": ArraySpec((2,))}
    told = Spaces({**seen, PRIVILEGED: ArraySpec((4,), privileged=True)}, Box(2), ("touch",), 20)
    assert names_of(told, Spaces(seen, Box(2), ("touch",), 20)) == {"eye": "eye", "state": "state"}
    alone = {"state": ArraySpec((4,)), PRIVILEGED: ArraySpec((4,), privileged=True)}
    assert names_of(told, Spaces(alone, Box(2), ("touch",), 20)) == {"state": PRIVILEGED, PRIVILEGED: PRIVILEGED}


@pytest.mark.parametrize(("algorithm", "takers"), [("sac", "play, evaluate, export"), ("drqv2", "play, evaluate")])
def test_the_command_names_export_where_it_takes_the_policy(demos, tmp_path, monkeypatch, capsys, algorithm, takers):
    monkeypatch.setattr(Job, "listen", lambda job: None)
    config = {"env": {"name": "spots:Spots"}, "network": {"actor_hidden": [8]}, "algorithm": algorithm}
    (tmp_path / "training.json").write_text(json.dumps(config))
    places = {"config": tmp_path / "training.json", "run_dir": tmp_path / "run"}
    fit(demos.folder, None, steps=2, batch_size=4, measure_every=2, **places)
    assert f"the policy: {tmp_path}/run/slots/0 (trainer {takers})\n" in capsys.readouterr().out
    found = find_playable(str(tmp_path / "run"), None, "cpu")
    assert (why_not(found.policy.net) is None) == takers.endswith("export")


def test_every_episode_is_either_learned_from_or_held_out():
    for count in (2, 3, 19, 200):
        learned, held = footage.held_out(count, 0.1, np.random.default_rng(0))
        assert sorted(learned + held) == list(range(count))
        assert len(held) == max(1, round(0.1 * count))


@pytest.mark.parametrize("by_actions", [True, False])
def test_what_reads_pictures_learns_at_its_part_of_the_rate(demos, tmp_path, by_actions):
    moved = {}
    for part in (1.0, 0.1):
        network = {"encoder": {"arch": "spots:Eye", "lr_scale": part}}
        before = begin.learner_of(demos, training(network), by_actions=by_actions).module.state_dict()
        done, _ = fitted(demos, tmp_path / str(part), by_actions=by_actions, steps=1, every=1, network=network)
        after = done.learner.module.state_dict()
        moved[part] = {name: float((after[name] - tensor).abs().max()) for name, tensor in before.items()}
    for name, far in moved[1.0].items():
        is_read = not by_actions or name.startswith("encoders.")
        assert moved[0.1][name] == pytest.approx(far * (0.1 if is_read else 1.0), rel=1e-3), name
    assert max(moved[1.0].values()) == pytest.approx(1e-3, rel=1e-3)  # Adam's first step


def test_a_fit_with_other_settings_does_not_go_on_there(demos, tmp_path):
    fitted(demos, tmp_path / "run", by_actions=True, steps=2, every=1)
    with pytest.raises(OtherIdentityError, match="use the old ones, or another --run-dir"):
        fitted(demos, tmp_path / "run", by_actions=True, steps=2, every=1, rate=1e-4)


def test_a_longer_fit_goes_on_and_is_the_one_that_was_long_from_the_start(demos, tmp_path):
    fitted(demos, tmp_path / "a", by_actions=False, steps=5, every=2)
    longer, _ = fitted(demos, tmp_path / "a", by_actions=False, steps=8, every=2)
    whole, _ = fitted(demos, tmp_path / "b", by_actions=False, steps=8, every=2)
    assert all(
        torch.equal(longer.learner.module.state_dict()[name], t)
        for name, t in whole.learner.module.state_dict().items()
    )
    assert [row.step for row in longer.rows] == [0, 2, 4, 5, 6, 8]


def test_what_a_job_that_was_killed_left_of_a_checkpoint_goes_when_the_next_one_has_saved(demos, tmp_path):
    fitted(demos, tmp_path, by_actions=False, steps=2, every=1)
    folder = tmp_path / "slots/0/attempts/0/checkpoints"
    for name in (".3.unfinished", ".1.deleted"):
        (folder / name).mkdir()
        (folder / name / "fit.safetensors").touch()
    fitted(demos, tmp_path, by_actions=False, steps=3, every=1)
    assert [path.name for path in folder.iterdir()] == ["2"]


def test_a_loss_that_is_no_number_ends_it(demos, tmp_path):
    with pytest.raises(NotFiniteError, match="a smaller --learning-rate"):
        fitted(demos, tmp_path / "run", by_actions=False, steps=50, rate=1e18, every=100)


def test_the_policy_that_imitated_best_is_kept_to_be_played(demos, tmp_path):
    """Beside the encoder; not the one that came last."""
    done, asked = fitted(demos, tmp_path / "run", by_actions=True, steps=120, every=40)
    found = find_playable(str(tmp_path / "run"), None, "cpu")
    assert (found.step, found.env) == (120, asked.env)
    done.learner.module.load_state_dict(done.best_module)
    arrays = next(arrays for told, arrays in all_of(demos) if told.frames >= 4)
    spec = spaces_of(asked).of_policy
    obs = {key: arrays[key][:4] for key in spec.obs}
    with torch.no_grad():
        seen = {key: torch.from_numpy(array) for key, array in obs.items()}
        outputs = done.learner.module(seen, torch.zeros(4, dtype=torch.long))
    expected = done.learner.module.distribution.mode(outputs).numpy()
    assert np.allclose(found.act(obs, np.zeros(4, np.int32)), expected, atol=1e-6)
    encoder = found.policy.net.encoders[IMAGE].state_dict()
    assert all(torch.equal(encoder[name], tensor) for name, tensor in done.best.items())


def test_a_policy_of_the_state_alone_imitates_without_an_encoder_and_does_the_task(demos, tmp_path):
    asked = training_of({"observation": "state"}).changed(actor_hidden=(32,))
    learner = begin.learner_of(demos, asked, by_actions=True)
    assert learner.encoder is None
    plan = begin.plan_of(demos, asked, learner, steps=600, batch_size=64, learning_rate=5e-3, every=300)
    done = run(Job.standalone(tmp_path / "run"), learner, plan, silent, silent)
    assert done.best == {}
    result = evaluate_checkpoint(tmp_path / "run", goals=20, goal_seed=None, device="cpu", num_workers=0)
    assert result.evaluation.mean_success >= 0.8
    exported = export(find_playable(str(tmp_path / "run"), None, "cpu"), tmp_path / "policy.safetensors")
    assert exported.deviation < 1e-4


@pytest.mark.parametrize("times", [3, 99])
def test_a_checkpoint_that_cannot_be_read_now_is_read_again_and_never_passed_over(demos, tmp_path, monkeypatch, times):
    asked = training_of({"observation": "state"}).changed(actor_hidden=(32,))

    def fitted_again():
        learner = begin.learner_of(demos, asked, by_actions=True)
        plan = begin.plan_of(demos, asked, learner, steps=40, batch_size=32, learning_rate=1e-3, every=20)
        return run(Job.standalone(tmp_path / "run"), learner, plan, silent, said.append, pauses.append)

    said, pauses, left = [], [], [errno.ESTALE] * times

    def reading(path, real=loop.read_json):
        if path.name == "state.json" and left:
            raise OSError(left.pop(), os.strerror(errno.ESTALE), str(path))
        return real(path)

    fitted_again()
    monkeypatch.setattr(loop, "read_json", reading)
    if times == 3:
        assert fitted_again().step == 40
        assert said[-2].endswith("going on at step 40 of attempt 0")
    else:
        with pytest.raises(UnreadCheckpointError, match=r"step 40 in .* cannot be read now \(.*Stale file handle"):
            fitted_again()
    assert len(pauses) == 3


def test_weights_that_are_no_ones_are_asked_for_nowhere(tmp_path):
    state = training_of({"observation": "state"})
    begin.check_out(None, state, by_actions=True)
    with pytest.raises(ConfigError, match="or leave --out out: then the policy alone is learned"):
        begin.check_out(tmp_path / "w.safetensors", state, by_actions=True)
    with pytest.raises(ConfigError, match="--out is missing"):
        begin.check_out(None, training(), by_actions=False)
