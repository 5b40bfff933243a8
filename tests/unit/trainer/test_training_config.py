from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest
from pydantic import Field, ValidationError
from refused import refused

from trainer.config.algorithms import A2c, Mtsac, Ppo, Sac, Td3
from trainer.config.find import ALGORITHMS, SUITES, files_of, settings_of
from trainer.config.group import GroupSettings
from trainer.config.network import Network
from trainer.config.presets import ABOUT, PRESETS
from trainer.config.read import read_section, sentences
from trainer.config.section import TrainingSection, put, resolve
from trainer.config.settings import AlgorithmSettings, EnvSettings
from trainer.config.suites import Metaworld
from trainer.config.tasknames import MT10, MT50
from trainer.config.training import SECTIONS, Training, deciding, differences, group_identity, identity
from trainer.errors import FieldError

#: For each field another valid value than the guide's.
OTHER = {
    "preset": "guide",
    "tasks": ("reach-v3", "push-v3"),
    "total_steps": 7,
    "num_envs": 3,
    "batch_size": 64,
    "buffer_size": 1000,
    "learning_rate": 0.5,
    "device": "cpu",
    "seed": 9,
    "checkpoint_interval": 11,
    "max_runtime_seconds": 5.0,
    "random_steps": 1,
    "updates_per_step": 0.3,
    "gamma": 0.5,
    "tau": 0.5,
    "init_temperature": 0.5,
    "shared_temperature": True,
    "target_entropy": -1.0,
    "actor_hidden": (8,),
    "critic_hidden": (8, 8),
    "critic_net": "heads",
    "demos": "demos",
    "demos_share": 0.25,
    "demos_sha256": "ab" * 32,
    "activation": "tanh",
    "encoders": {},
    "encoder": {},
    "trunk": 50,
    "observation": "both",
    "cameras": ("corner",),
    "image_size": 32,
    "frame_stack": 3,
    "frame_stride": 2,
    "randomize_view": True,
    "critic_sees": "state",
    "critic_loss": "categorical",
    "value_bins": 51,
    "value_limit": 5.0,
    "weight_decay": 0.1,
    "grad_clip": 1.0,
    "adam_eps": 1e-5,
    "horizon": 100,
    "num_workers": 2,
    "cuda_graph": True,
    "threads": 2,
    "metrics_interval": 3,
    "evaluation_interval": 0,
    "evaluation_goals": 5,
    "evaluation_unseen_goals": 7,
    "publish_interval": 50,
    "contribution_max_lag": 70,
    "contribution_check_share": 0.5,
    "contribution_rollback": "auto",
    "trusted_contributors": ("ann",),
    "keep_checkpoints": 5,
    "keep_milestones": 2,
    "stream": False,
    "stream_port": 1234,
    "stream_top_k": 3,
    "shards": 2,
    "averaging": 0.9,
    "precision": "bf16",
    "replay_on": "device",
    "init_seed": 7,
    "group": GroupSettings(rows=True, every=3),
}
#: What a field's other value needs beside it.
BESIDE = {
    "critic_loss": {"critic_net": "residual", "critic_hidden": (8, 8)},
    **{name: {"demos": "demos"} for name in ("demos_share", "demos_sha256")},
}


#: Those that do not fit to mtsac, to the numbers of a state, or to the tests that take each alone.
UNFIT = {
    "preset", "encoders", "activation", "encoder", "trunk", "observation", "cameras", "image_size", "frame_stack",
    "frame_stride", "randomize_view", "critic_sees",
}  # fmt: skip
#: Which of them decide the numbers that are trained: all of the sections, and the seeds.
DECIDING = {
    "seed", "init_seed", *(name for made in (Metaworld, Mtsac, Network) for name in made.model_fields if name in OTHER)
}  # fmt: skip


class Clipped:
    """A suite that has a field of PPO's, and one of MT-SAC's."""

    class Settings(EnvSettings):
        """Of it."""

        name: str = f"{__name__}:Clipped"
        tasks: tuple[str, ...] = ("only",)
        horizon: int = 10
        clip: float = Field(1.0, description="Where rewards are cut.")
        buffer_size: int = Field(3, description="Things that it remembers.")


CLIPPED = f"{__name__}:Clipped"


def flat(training):
    """Every field by its short name."""
    inner = {name: value for section in SECTIONS for name, value in dict(getattr(training, section)).items()}
    return {**inner, **dict(training)}


def resolved(**fields):
    return flat(resolve(TrainingSection(**fields)))


POINTS = "anchorleg_toys.points:Points"


def refusal(**fields):
    with pytest.raises(ValidationError) as caught:
        TrainingSection(**fields)
    problem = caught.value.errors()[0]
    error = problem.get("ctx", {}).get("error")
    return error.id if isinstance(error, FieldError) else problem["type"]


def test_an_empty_section_is_the_guide():
    training = resolve(TrainingSection())
    assert training.env == Metaworld(tasks=MT10)
    assert (training.algorithm.batch_size, training.algorithm.buffer_size) == (512, 2_000_000)
    assert training.algorithm.updates_per_step == 0.1
    assert training.network.actor_hidden == (256, 256)
    assert training.network.critic_hidden == (1024, 1024, 1024)
    assert training.num_envs == len(MT10)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_resolves_and_its_dump_resolves_to_itself(preset):
    training = resolve(TrainingSection(preset=preset))
    assert resolve(TrainingSection(**training.model_dump(mode="json"))) == training


def test_the_users_own_example_loads():
    section = TrainingSection(
        total_steps=5_000_000, num_envs=8, batch_size=64, device="cuda", stream=True, stream_port=9999
    )
    assert resolve(section).num_envs == 8


@pytest.mark.parametrize("field", [name for name in OTHER if name not in UNFIT])
def test_each_field_reaches_the_training_by_its_short_name_and_in_its_section(field):
    beside = BESIDE.get(field, {})
    assert resolved(**{field: OTHER[field]}, **beside)[field] == OTHER[field]
    for section, made in zip(SECTIONS, (Metaworld, Mtsac, Network), strict=True):
        if field in made.model_fields:
            assert resolved(**{section: {field: OTHER[field]}}, **beside)[field] == OTHER[field]


def test_the_table_of_this_test_knows_every_field():
    assert set(OTHER) == set(resolved()) - {*SECTIONS, "benchmark", "name"}


@pytest.mark.parametrize("settings", [Training, Metaworld, Mtsac, Sac, Td3, Ppo, A2c, Network, GroupSettings])
def test_every_field_has_its_sentence(settings):
    assert [name for name, field in settings.model_fields.items() if not field.description and name != "network"] == []


@pytest.mark.parametrize("field", [name for name in OTHER if name not in UNFIT])
def test_identity_changes_with_exactly_the_fields_that_it_names(field):
    beside = BESIDE.get(field, {})
    changed = identity(resolve(TrainingSection(**{field: OTHER[field]}, **beside))) != identity(
        resolve(TrainingSection(**beside))
    )
    assert changed == (field in DECIDING)


@pytest.mark.parametrize(
    ("algorithm", "begun"),
    [
        ("mtsac", "6e6c802a2c89"),
        ("sac", "a1327867e059"),
        ("td3", "f83c01dbe3b9"),
        ("drqv2", "fe42252c4578"),
        ("ppo", "94f5880e8af1"),
        ("a2c", "d3bf6ed0adab"),
    ],
)
def test_an_identity_changes_only_where_that_is_meant(algorithm, begun):
    assert identity(resolve(TrainingSection(algorithm=algorithm)))[:12] == begun


def test_slots_of_one_init_seed_are_a_group_and_without_one_nothing_is_said_of_it():
    one, other = (resolve(TrainingSection(seed=seed, init_seed=7)) for seed in (0, 1))
    assert group_identity(one) == group_identity(other) != group_identity(resolve(TrainingSection(init_seed=8)))
    assert "init_seed" not in deciding(resolve(TrainingSection()))  # what was begun before there was one goes on
    assert (one.seed_of_nets, resolve(TrainingSection(seed=3)).seed_of_nets) == (7, 3)
    assert differences(resolve(TrainingSection()).model_dump(mode="json"), one) == ["init_seed None → 7"]


def test_slots_whose_episodes_would_be_too_old_for_each_other_are_refused():
    with refused("group.episodes-too-long", steps=640_000, wanted=1_280_000):
        TrainingSection(preset="fast-td3", group={"rows": True})
    together = resolve(TrainingSection(preset="fast-td3", group={"rows": True}, contribution_max_lag=1_280_000))
    assert together.changed(contribution_max_lag=200_000)  # so a checkpoint that says so still loads
    assert resolve(TrainingSection(preset="fast-td3"))


@pytest.mark.parametrize("algorithm", ["mtsac", "sac", "td3"])
def test_what_can_be_mixed_is_taken(algorithm):
    training = resolve(TrainingSection(algorithm=algorithm, init_seed=0, group={"mix": True}))
    assert (training.group.ways, training.group.mix_every) == (("mix",), 1000)


def test_an_algorithm_that_does_not_say_what_can_be_averaged_is_refused():
    assert AlgorithmSettings(name="mine:Own").unmixable.id == "mix.unknown-algorithm"


def test_only_what_trains_no_other_numbers_is_left_out_of_the_identity():
    assert set(OTHER) - DECIDING == {
        "preset", "total_steps", "num_envs", "device", "checkpoint_interval", "max_runtime_seconds",
        "num_workers", "threads", "cuda_graph", "replay_on", "metrics_interval", "evaluation_interval",
        "evaluation_goals",
        "evaluation_unseen_goals", "publish_interval",
        "contribution_max_lag", "contribution_check_share", "contribution_rollback", "trusted_contributors",
        "keep_checkpoints", "keep_milestones", "stream", "stream_port", "stream_top_k", "group", "averaging",
    }  # fmt: skip


def test_where_demonstrations_lie_is_no_part_of_what_is_trained_and_without_them_nothing_of_them_is():
    told = {"demos": "here", "demos_sha256": "ab" * 32}
    one, other = (resolve(TrainingSection(**{**told, "demos": where})) for where in ("here", "there"))
    assert identity(one) == identity(other)
    assert differences(one.model_dump(mode="json"), other) == []
    plain = resolve(TrainingSection())
    assert not [name for name in deciding(plain)["algorithm"] if name.startswith("demos")]
    assert differences(plain.model_dump(mode="json"), one) == [
        "demos_share None → 0.5", f"demos_sha256 None → {'ab' * 32}"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "suite", "algorithm"),
    [
        ({"preset": "arm-sac", "env": {"horizon": 30}}, "arm", "sac"),
        ({"preset": "arm-ppo", "algorithm": {"batch_size": 64}}, "arm", "ppo"),
        ({"preset": "cartpole-ppo", "env": {"horizon": 100}}, "gymnasium", "ppo"),
        ({"preset": "arm-ppo", "env": {"name": "metaworld", "horizon": 30}}, "metaworld", "ppo"),
        ({"preset": "tiny", "env": {"horizon": 30}}, "metaworld", "mtsac"),
    ],
)
def test_a_section_that_does_not_say_its_name_is_the_presets(written, suite, algorithm):
    training = resolve(TrainingSection(**written))
    assert (training.env.name, training.algorithm.name) == (suite, algorithm)
    assert written.get("env", {}).get("horizon", training.env.horizon) == training.env.horizon


def test_of_an_algorithms_own_encoder_one_setting_changes_and_another_encoder_takes_its_place():
    def of(**encoder):
        return resolve(TrainingSection(algorithm="drqv2", env={"observation": "both"}, encoder=encoder)).network.encoder

    assert (of(lr_scale=0.5).arch, of(lr_scale=0.5).lr_scale) == ("drq", 0.5)
    assert of(arch="impala").arch == "impala"


def test_a_benchmark_replaces_the_presets_tasks():
    assert resolve(TrainingSection(preset="tiny", benchmark="mt50")).env.tasks == MT50
    assert resolve(TrainingSection(env={"benchmark": "mt50"})).env.tasks == MT50


@pytest.mark.parametrize(
    ("benchmark", "total", "batch", "buffer", "updates", "evaluation"),
    [("MT10", 20_000_000, 1280, 1_000_000, 0.1, 200_000), ("MT50", 100_000_000, 6400, 5_000_000, 0.02, 1_000_000)],
)
def test_mclean_has_the_numbers_of_the_authors_code(benchmark, total, batch, buffer, updates, evaluation):
    training = resolved(preset="mclean", benchmark=benchmark)
    assert (training["total_steps"], training["batch_size"], training["buffer_size"]) == (total, batch, buffer)
    assert (training["updates_per_step"], training["evaluation_interval"]) == (updates, evaluation)
    assert training["random_steps"] == 4_000 * len(training["tasks"])
    assert (training["grad_clip"], training["adam_eps"], training["critic_net"]) == (1.0, 1e-5, "heads")


#: Preset → what the guides say of it.
GUIDES = {
    "guide": {"batch_size": 512, "buffer_size": 2_000_000, "learning_rate": 3e-4, "total_steps": 2_000_000},
    "guide-2m": {"batch_size": 512, "buffer_size": 2_000_000, "learning_rate": 3e-4, "total_steps": 2_000_000,
                 "num_envs": 32, "checkpoint_interval": 50_000},
    "guide-20m": {"batch_size": 512, "buffer_size": 2_000_000, "learning_rate": 3e-4, "total_steps": 20_000_000,
                  "num_envs": 48, "checkpoint_interval": 50_000},
    "aggressive": {"batch_size": 2048, "buffer_size": 10_000_000, "learning_rate": 5e-4},
    "debug": {"batch_size": 128, "buffer_size": 100_000, "learning_rate": 1e-3, "total_steps": 10_000},
}  # fmt: skip


@pytest.mark.parametrize("preset", GUIDES)
def test_the_guides_presets_have_the_guides_values(preset):
    training, guide = resolved(preset=preset), resolved()
    assert {name: training[name] for name in GUIDES[preset]} == GUIDES[preset]
    assert training["tasks"] == MT10
    if preset != "debug":
        assert (training["actor_hidden"], training["critic_hidden"]) == ((256, 256), (1024, 1024, 1024))
        assert (training["evaluation_interval"], training["evaluation_goals"]) == (200_000, 50)
        others = set(guide) - set(GUIDES[preset]) - {"preset", *SECTIONS}
        assert [name for name in others if training[name] != guide[name]] == []


def test_best_updates_twice_a_vector_step_and_brc_eight_times():
    best, brc = (resolve(TrainingSection(preset=name)) for name in ("best", "brc"))
    assert (best.algorithm.updates_per_step, brc.algorithm.updates_per_step) == (0.2, 0.8)
    assert resolve(TrainingSection(preset="best", benchmark="MT50")).algorithm.updates_per_step == 0.04
    for one in (best, brc):
        assert (one.network.critic_net, one.algorithm.critic_loss) == ("residual", "categorical")
        assert (one.algorithm.value_bins, one.algorithm.value_limit) == (101, 10.0)
    made = brc.algorithm
    assert (brc.total_steps, made.batch_size, made.buffer_size, made.random_steps) == (
        3_000_000,
        1024,
        2_000_000,
        25_000,
    )


def test_every_preset_has_its_sentence():
    assert list(ABOUT) == list(PRESETS)


def test_what_grows_with_the_tasks_gives_way_to_the_user():
    made = resolve(TrainingSection(preset="mclean", tasks=("reach-v3",), batch_size=64)).algorithm
    assert (made.batch_size, made.buffer_size, made.updates_per_step) == (64, 100_000, 1.0)


def test_mistakes_are_answered_with_the_nearest_name():
    for wrong, fields, near in (
        ("preset.unknown", {"preset": "tinny"}, "tiny"),
        ("env.unknown-task", {"tasks": ["reech-v3"]}, "reach-v3"),
        ("env.unknown-benchmark", {"benchmark": "MT11"}, "MT10"),
    ):
        with refused(wrong, hint=f'did you mean "{near}"?'):
            TrainingSection(**fields)


def test_a_batch_smaller_than_the_tasks_is_refused_with_the_number_to_use():
    with refused("algorithm.batch-below-tasks", batch_size=3, tasks=10):
        TrainingSection(batch_size=3)


@pytest.mark.parametrize(
    ("fields", "place", "words"),
    [
        ({"batchsize": 3}, ("batchsize",), 'did you mean "batch_size"'),
        ({"algorithm": {"gama": 0.5}}, ("algorithm", "gama"), 'did you mean "gamma"'),
        ({"network": {"actor_hiden": [3]}}, ("network", "actor_hiden"), 'did you mean "actor_hidden"'),
        ({"gamma": 2}, ("gamma",), "less than 1"),
        ({"algorithm": {"gamma": 2}}, ("algorithm", "gamma"), "less than 1"),
        ({"env": {"benchmark": "MT11"}}, ("env", "benchmark"), 'did you mean "MT10"'),
        ({"benchmark": "MT11"}, ("benchmark",), 'did you mean "MT10"'),
        ({"algorithm": "mtsacs"}, ("algorithm",), "there is no algorithm 'mtsacs'"),
        ({"env": "mars"}, ("env",), "there is no suite 'mars'"),
    ],
)
def test_a_mistake_is_told_where_it_was_written(fields, place, words):
    with pytest.raises(ValidationError) as caught:
        TrainingSection(**fields)
    (error,) = caught.value.errors()
    assert error["loc"] == place
    assert words in error["msg"]


@pytest.mark.parametrize(("widths", "mistakes"), [([10_000_000], 1), ([10_000_000, 0, 8], 2), ([], 1)])
def test_a_list_with_a_mistake_in_it_is_not_called_empty(widths, mistakes):
    with pytest.raises(ValidationError) as caught:
        TrainingSection(actor_hidden=widths)
    told = sentences(caught.value, TrainingSection)
    assert len(told) == mistakes
    assert ("must not be empty" in str(told)) == (not widths)


def test_what_is_typed_replaces_what_stands_there_in_either_form():
    nested = {"algorithm": {"name": "mtsac", "batch_size": 64}, "env": {"benchmark": "MT50"}}
    put(nested, "batch_size", 32)
    put(nested, "env.tasks", ["reach-v3"])
    training = resolve(TrainingSection(**nested))
    assert (training.algorithm.batch_size, training.env.tasks) == (32, ("reach-v3",))
    short = {"batch_size": 64, "tasks": ["push-v3"]}
    put(short, "algorithm.batch_size", 32)
    put(short, "benchmark", "MT10")
    training = resolve(TrainingSection(**short))
    assert (training.algorithm.batch_size, training.env.tasks) == (32, MT10)
    over = TrainingSection(**nested).over({"batch_size": 20, "benchmark": "MT10"})
    assert (resolve(over).algorithm.batch_size, resolve(over).env.tasks) == (20, MT10)


ARM_PPO = {"env": "arm", "algorithm": "ppo"}
CART = {"env": "gymnasium", "algorithm": "ppo", "id": "CartPole-v1"}


@pytest.mark.parametrize(
    ("written", "over", "section", "found"),
    [
        ({**ARM_PPO, "epochs": 10}, {"algorithm": {"epochs": 5}}, "algorithm", {"name": "ppo", "epochs": 5}),
        ({"preset": "arm-ppo", "epochs": 10}, {"algorithm": {"epochs": 5}}, "algorithm", {"name": "ppo", "epochs": 5}),
        ({"preset": "arm-ppo", "algorithm": {"epochs": 10}}, {"epochs": 5}, "algorithm", {"name": "ppo", "epochs": 5}),
        ({"preset": "arm-ppo", "clip": 0.1}, {"algorithm": {"clip": 0.3}}, "algorithm", {"clip": 0.3}),
        ({"preset": "arm-td3", "n_step": 3}, {"algorithm": {"n_step": 4}}, "algorithm", {"n_step": 4}),
        (CART, {"env": {"id": "Acrobot-v1"}}, "env", {"id": "Acrobot-v1"}),
        (
            {**CART, "kwargs": {"sutton_barto_reward": True}}, {"env": {"kwargs": {}}},
            "env", {"id": "CartPole-v1", "kwargs": {}},
        ),
        (
            {"preset": "arm-ppo", "gae_lambda": 0.9}, {"preset": "arm-a2c", "algorithm": {"gae_lambda": 0.8}},
            "algorithm", {"name": "a2c", "gae_lambda": 0.8},
        ),
        # Another algorithm takes what was said of none by name, as where it is typed.
        ({**ARM_PPO, "gamma": 0.9}, {"algorithm": "a2c"}, "algorithm", {"name": "a2c", "gamma": 0.9}),
        ({**ARM_PPO, "gamma": 0.9}, {"algorithm": {"name": "sac", "tau": 1}}, "algorithm", {"tau": 1, "gamma": 0.9}),
        ({**ARM_PPO, "algorithm": {"name": "ppo", "gamma": 0.9}}, {"algorithm": "a2c"}, "algorithm", {"gamma": 0.99}),
    ],
)  # fmt: skip
def test_what_a_slot_has_otherwise_counts_whichever_way_either_is_written(written, over, section, found):
    training = resolve(TrainingSection(**written).over(over))
    assert {name: getattr(getattr(training, section), name) for name in found} == found


def test_what_a_slot_has_otherwise_is_resolved_by_who_asks_for_it():
    section = TrainingSection(**ARM_PPO).over({"algorithm": {"epochs": 0}})
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        resolve(section)
    for unknown in ({"env": "mars"}, {"preset": "tinny"}, {"preset": ["tiny"]}):
        with pytest.raises(ValidationError):
            TrainingSection(**ARM_PPO).over(unknown)


def test_a_short_name_of_two_sections_is_refused_with_both_places():
    wrong = "config.short-name-of-several"
    assert refusal(env=CLIPPED, algorithm="ppo", clip=0.1) == wrong
    with refused(wrong, field="clip", places="env.clip or algorithm.clip"):
        read_section(None, None, [f"env={CLIPPED}", "algorithm=ppo", "clip=0.1"])
    section = TrainingSection(env={"name": CLIPPED, "clip": 2}, algorithm="ppo")
    with refused(wrong):
        section.over({"clip": 0.1})
    training = resolve(section.over({"algorithm": {"clip": 0.1}}))
    assert (training.env.clip, training.algorithm.clip) == (2, 0.1)
    assert resolve(TrainingSection(env={"name": CLIPPED}, clip=3)).env.clip == 3, "mtsac has none"
    with refused(wrong):
        training.changed(clip=0.3)
    assert training.changed(algorithm={"clip": 0.3}).algorithm.clip == 0.3


def test_no_suite_here_has_a_field_of_an_algorithm_or_of_the_nets():
    for suite, algorithm in itertools.product(files_of(SUITES), files_of(ALGORITHMS)):
        fields = [settings_of(SUITES, suite).model_fields, settings_of(ALGORITHMS, algorithm).model_fields]
        names = [name for one in (*fields, Network.model_fields) for name in one if name != "name"]
        assert len(names) == len(set(names))
        assert not {*names} & {*Training.model_fields}


def test_tasks_of_any_suite_are_told_apart_and_there_is_one():
    with pytest.raises(ValidationError) as caught:
        TrainingSection(env={"name": CLIPPED, "tasks": []})
    assert [error["loc"] for error in caught.value.errors()] == [("env", "tasks")]


def test_of_a_preset_each_section_counts_for_whom_it_is():
    arm_ppo = resolve(TrainingSection(preset="arm-ppo"))
    own_suite = resolve(TrainingSection(preset="arm-ppo", env=CLIPPED))
    assert (own_suite.algorithm, own_suite.network) == (arm_ppo.algorithm, arm_ppo.network)
    assert (own_suite.env.horizon, own_suite.total_steps) == (10, arm_ppo.total_steps)
    own_algorithm = resolve(TrainingSection(preset="arm-pixels", algorithm="anchorleg_toys.drift:Drift"))
    assert own_algorithm.network == Network()
    assert own_algorithm.env == resolve(TrainingSection(preset="arm-pixels")).env


def test_what_is_typed_goes_as_deep_as_its_dots():
    clips = {"algorithm": "sac", "env": {"observation": "clips"}}
    put(clips, "network.encoder.arch", "simple2dcnn")
    put(clips, "network.encoder.over_time", "mean")
    put(clips, "encoder.features", 64)  # beside what stands in its section
    encoder = resolve(TrainingSection(**clips)).network.encoder
    assert (encoder.arch, encoder.over_time, encoder.features) == ("simple2dcnn", "mean", 64)
    short = {"algorithm": "sac", "observation": "clips", "encoder": {"arch": "simple2dcnn", "features": 64}}
    before = short["encoder"]
    put(short, "network.encoder.over_time", "mean")
    assert resolve(TrainingSection(**short)).network.encoder == encoder
    assert before == {"arch": "simple2dcnn", "features": 64}
    cart = {"env": {"name": "gymnasium", "id": "CartPole-v1"}, "algorithm": "ppo"}
    put(cart, "env.kwargs.sutton_barto_reward", value=True)
    assert resolve(TrainingSection(**cart)).env.kwargs == {"sutton_barto_reward": True}


@pytest.mark.parametrize("there", [{"gamma": 0.9}, {"name": "ppo", "gamma": 0.9}])
def test_a_name_that_is_typed_leaves_what_stands_there_for_it_and_replaces_what_is_for_another(there):
    section = {"env": "arm", "algorithm": there}
    put(section, "algorithm", "ppo")
    training = resolve(TrainingSection(**section))
    assert (training.algorithm.name, training.algorithm.gamma) == ("ppo", 0.9)
    section = {"env": "arm", "algorithm": {"name": "sac", "gamma": 0.9}}
    before = section["algorithm"]
    put(section, "algorithm", "ppo")
    assert resolve(TrainingSection(**section)).algorithm.gamma == 0.99
    assert before == {"name": "sac", "gamma": 0.9}


@pytest.mark.parametrize("file", [{}, {"env": "metaworld", "algorithm": {"name": "sac", "tau": 0.1}}])
@pytest.mark.parametrize("before", ["", "training."])
def test_what_is_typed_before_the_name_that_it_is_for_is_not_lost(tmp_path, file, before):
    path = tmp_path / "section.json"
    path.write_text(json.dumps(file))
    typed = ["env.horizon=50", "algorithm.clip=0.1", "env=arm", "algorithm=ppo"]
    training = read_section(path, None, [f"{before}{setting}" for setting in typed]).training
    assert (training.env.name, training.env.horizon, training.algorithm.clip) == ("arm", 50, 0.1)


def test_of_a_field_and_a_whole_section_the_one_that_is_typed_last_counts():
    whole = 'algorithm={"name":"sac","gamma":0.8}'
    for typed, gamma in ((["algorithm.gamma=0.9", whole], 0.8), ([whole, "algorithm.gamma=0.9"], 0.9)):
        assert read_section(None, None, ["env=arm", *typed]).training.algorithm.gamma == gamma


@pytest.mark.parametrize("before", ["", "training."])
def test_set_reaches_a_field_of_an_encoder(before):
    settings = ["algorithm=sac", "observation=clips", f"{before}network.encoder.arch=simple2dcnn"]
    assert read_section(None, None, settings).training.network.encoder.arch == "simple2dcnn"


@pytest.mark.parametrize("preset", ["arm-pixels", "reach-pixels"])
def test_a_preset_that_sees_is_turned_to_the_state_by_one_setting(preset):
    seeing = resolve(TrainingSection(preset=preset))
    training = read_section(None, preset, ["observation=state"]).training
    assert training.env == type(training.env)(
        tasks=seeing.env.tasks, horizon=seeing.env.horizon, **({"goals": "box"} if preset == "arm-pixels" else {})
    )
    rest = {"random_shift": getattr(type(seeing.algorithm).model_fields.get("random_shift"), "default", None)}
    assert {**dict(seeing.algorithm), **rest} == {**dict(training.algorithm), **rest}
    assert training.network == seeing.network
    assert resolve(TrainingSection(**training.model_dump(mode="json"))) == training
    nested = resolve(TrainingSection(preset=preset, env={"name": seeing.env.name, "observation": "state"}))
    assert nested == training
    assert resolve(TrainingSection(preset=preset, observation="cameras")).env.cameras == seeing.env.cameras
    wrong = refusal(preset=preset, observation="state", cameras=seeing.env.cameras[:1])
    assert wrong == "env.setting-of-pictures"


def test_differences_name_what_a_checkpoint_insists_on():
    training = resolve(TrainingSection(preset="tiny"))
    saved = training.model_dump(mode="json")
    assert differences(saved, training) == []
    other = training.changed(batch_size=64, seed=4, total_steps=7, critic_hidden=(8,))
    assert differences(saved, other) == ["seed 0 → 4", "batch_size 128 → 64", "critic_hidden [128, 128] → [8]"]


@pytest.mark.parametrize(
    "fields",
    [
        {"gamma": 1.0},
        {"learning_rate": 0},
        {"learning_rate": float("nan")},
        {"total_steps": 0},
        {"horizon": 501},
        {"evaluation_goals": 51},
        {"seed": -1},
        {"tasks": []},
        {"device": "tpu"},
        {"actor_hidden": []},
        {"buffer_size": 20},
        {"batchsize": 3},
    ],
)
def test_impossible_values_are_refused(fields):
    assert refusal(**fields)


def test_a_login_node_needs_neither_torch_nor_numpy_to_check_a_config():
    heavy = {"torch", "numpy", "metaworld", "mujoco"}
    code = f"import sys, trainer.config.section; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_algorithm_brings_its_own_nets_and_number_of_environments_where_nobody_says_otherwise():
    ppo = resolve(TrainingSection(algorithm="ppo", tasks=["reach-v3"]))
    assert (ppo.network.actor_hidden, ppo.network.activation, ppo.num_envs) == ((64, 64), "tanh", 8)
    assert resolve(TrainingSection(algorithm="ppo")).num_envs == 10  # of each of MT10's tasks one
    assert resolve(TrainingSection(algorithm="ppo", tasks=["reach-v3", "push-v3", "pick-place-v3"])).num_envs == 9
    mine = resolve(TrainingSection(algorithm="ppo", actor_hidden=(8,), num_envs=3, batch_size=32))
    assert (mine.network.actor_hidden, mine.num_envs) == ((8,), 3)
    tiny = resolve(TrainingSection(preset="tiny", algorithm="sac"))
    assert tiny.network.critic_hidden == (256, 256)  # the preset's nets are mtsac's
    assert tiny.env == resolve(TrainingSection(preset="tiny")).env


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"algorithm": "ppo", "batch_size": 9999}, "algorithm.batch-above-rollout"),
        ({"algorithm": "ppo", "critic_net": "heads"}, "network.critic-net-of-mtsac"),
        ({"algorithm": "ppo", "trunk": 8}, "network.trunk-of-off-policy"),
        ({"algorithm": "a2c", "network": {"trunk": 50}}, "network.trunk-of-off-policy"),
        ({"algorithm": "sac", "critic_net": "residual"}, "network.critic-net-of-mtsac"),
        ({"activation": "tanh"}, "network.activation-not-relu"),
        ({"algorithm": "ppo", "buffer_size": 100}, "config.unknown-field"),
        ({"env": "arm", "algorithm": "ppo", "demos": "x"}, "demos.on-policy"),
        ({"env": "arm", "algorithm": {"name": "ppo", "demos_share": 0.1}}, "demos.on-policy"),
        ({"demos": "x", "demos_share": 0.6}, "less_than_equal"),
        ({"group": {"mix": True}}, "mix.needs-init-seed"),
        ({"init_seed": 0, "algorithm": "ppo", "group": {"mix": True}}, "group.on-policy"),
        ({"init_seed": 0, "preset": "brc", "group": {"mix": True}}, "mix.categorical-critics"),
        ({"critic_net": "residual", "critic_hidden": (64, 32)}, "network.critic-widths-differ"),
        ({"critic_loss": "categorical"}, "algorithm.categorical-needs-residual"),
        ({"encoders": {"state": "nature"}}, "network.encoders-of-state-learner"),
        ({"critic_net": "transformer"}, "literal_error"),
        ({"env": {"name": POINTS, "tasks": []}}, "env.no-tasks"),
        ({"env": POINTS, "tasks": ["left", "right", "left"]}, "env.task-twice"),
        ({"tasks": ["reach-v3", "reach-v3"]}, "env.task-twice"),
        ({"benchmark": "MT10", "tasks": ["reach-v3"]}, "env.benchmark-and-tasks"),
    ],
)
def test_what_does_not_fit_together_is_refused(fields, wrong):
    assert refusal(**fields) == wrong


def in_shards(shards, **more):
    return resolve(
        TrainingSection(**{"preset": "arm-ppo", "num_envs": 8, **more, "algorithm": {"name": "ppo", "shards": shards}})
    )


def test_shards_are_part_of_what_a_training_is_where_there_are_several():
    one, two = in_shards(1), in_shards(2)
    assert "shards" not in deciding(one)["algorithm"]  # so what was begun before there were any goes on
    assert identity(one) != identity(two)
    before = one.model_dump(mode="json")
    del before["algorithm"]["shards"]
    for saved in (before, one.model_dump(mode="json")):
        assert differences(saved, one) == []
        assert differences(saved, two) == ["shards 1 → 2"]
    assert differences(two.model_dump(mode="json"), one) == ["shards 2 → 1"]


@pytest.mark.parametrize(
    ("section", "wrong", "nearest"),
    [
        ({"algorithm": {"name": "anchorleg_toys.drift:Drift", "shards": 2}}, "algorithm.unsharded", None),
        ({"preset": "arm-sac", "num_envs": 3, "batch_size": 33, "shards": 2}, "algorithm.uneven-shards", 34),
        ({"preset": "arm-ppo", "num_envs": 6, "shards": 4}, "algorithm.uneven-shards", 8),
        ({"preset": "arm-ppo", "num_envs": 9, "batch_size": 32, "shards": 3}, "algorithm.uneven-shards", 33),
    ],
)
def test_what_cannot_be_cut_into_shards_is_refused(section, wrong, nearest):
    with refused(wrong, nearest=nearest):
        resolve(TrainingSection(**section))
