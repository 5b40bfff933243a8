"""The section `training`: what it comes to, what a checkpoint insists on, what is refused. Rows: `sections.toml`."""

from __future__ import annotations

import itertools
import json
import tomllib
from pathlib import Path

import pytest
from pydantic import Field, ValidationError
from refused import refused

from trainer.config.algorithms import Mtsac
from trainer.config.find import ALGORITHMS, SUITES, files_of, settings_of
from trainer.config.network import Network
from trainer.config.read import read_section, sentences
from trainer.config.section import PRESETS, TrainingSection, put, resolve, trained
from trainer.config.settings import EnvSettings
from trainer.config.suites import MT10, Metaworld
from trainer.config.training import SECTIONS, Training, deciding, differences, group_identity, identity

DATA = tomllib.loads(Path(__file__).with_name("sections.toml").read_text(encoding="utf-8"))
#: For each field another valid value than the guide's.
OTHER = DATA["other"]
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


def must_be_refused(section, place, wrong, fields):
    with pytest.raises(ValidationError) as caught:
        TrainingSection.model_validate(section)
    ((where, error),) = sentences(caught.value, TrainingSection)
    assert (where, error.id) == (place, wrong)
    assert {name: error.fields[name] for name in fields} == fields


@pytest.mark.parametrize("row", DATA["refused"], ids=str)
def test_a_mistake_is_refused_where_it_was_written(row):
    must_be_refused(*row)


@pytest.mark.parametrize("row", DATA["refused_anew"], ids=str)
def test_what_nothing_reads_is_refused_and_a_checkpoint_that_says_so_loads(row):
    must_be_refused(*row)
    training = trained(row[0])
    assert trained(training.model_dump(mode="json")) == training


@pytest.mark.parametrize("section", [*DATA["taken"], *({"preset": name} for name in PRESETS)], ids=str)
def test_what_is_read_is_taken_and_its_dump_resolves_to_itself(section):
    training = resolve(TrainingSection.model_validate(section))
    assert resolve(TrainingSection.model_validate(training.model_dump(mode="json"))) == training


def same(found, wanted):
    return json.dumps(found, default=dict, sort_keys=True) == json.dumps(wanted, sort_keys=True)


@pytest.mark.parametrize("field", [name for name in OTHER if name not in UNFIT])
def test_each_field_reaches_the_training_either_way_and_changes_its_identity_where_it_decides_numbers(field):
    beside = BESIDE.get(field, {})
    short = resolve(TrainingSection(**{field: OTHER[field]}, **beside))
    assert same(flat(short)[field], OTHER[field])
    for section, made in zip(SECTIONS, (Metaworld, Mtsac, Network), strict=True):
        if field in made.model_fields:
            assert resolve(TrainingSection(**{section: {field: OTHER[field]}}, **beside)) == short
    assert (identity(short) != identity(resolve(TrainingSection(**beside)))) == (field in DECIDING)


def test_the_table_of_this_test_knows_every_field():
    assert set(OTHER) == set(resolved()) - {*SECTIONS, "benchmark", "name"}


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


def test_a_short_name_of_two_sections_is_refused_with_both_places():
    wrong = "config.short-name-of-several"
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
