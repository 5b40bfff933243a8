from __future__ import annotations

import subprocess
import sys

import pytest
from pydantic import ValidationError

from trainer.config import IDENTITY_FIELDS, NOT_BUILT_YET, Training, TrainingSection, identity, resolve
from trainer.presets import ABOUT, PRESETS
from trainer.tasknames import MT10, MT50

#: For each field another valid value than the guide's.
OTHER = {
    "preset": "guide",
    "tasks": ("reach-v3", "push-v3"),
    "algorithm": "mtsac",
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
    "stream": True,
    "stream_port": 1234,
    "stream_top_k": 3,
}
#: What a field's other value needs beside it.
BESIDE = {"critic_loss": {"critic_net": "residual", "critic_hidden": (8, 8)}}


def refusal(**fields):
    with pytest.raises(ValidationError) as caught:
        TrainingSection(**fields)
    return caught.value.errors()[0]["msg"]


def test_an_empty_section_is_the_guide():
    training = resolve(TrainingSection())
    assert training.tasks == MT10
    assert (training.batch_size, training.buffer_size, training.updates_per_step) == (512, 2_000_000, 0.1)
    assert training.actor_hidden == (256, 256)
    assert training.critic_hidden == (1024, 1024, 1024)
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
    assert {"stream", "stream_port"} <= set(NOT_BUILT_YET)


@pytest.mark.parametrize("field", [name for name in OTHER if name not in {"preset", "algorithm"}])
def test_each_field_of_the_section_reaches_the_training(field):
    section = TrainingSection(**{field: OTHER[field]}, **BESIDE.get(field, {}))
    assert getattr(resolve(section), field) == OTHER[field]


def test_the_table_of_this_test_knows_every_field():
    assert set(OTHER) == set(Training.model_fields)
    assert set(TrainingSection.model_fields) == set(Training.model_fields) | {"benchmark"}


def test_every_field_of_the_section_has_its_sentence():
    assert [name for name, field in TrainingSection.model_fields.items() if not field.description] == []


@pytest.mark.parametrize("field", [name for name in OTHER if name not in {"preset", "algorithm"}])
def test_identity_changes_with_exactly_the_fields_that_it_names(field):
    beside = BESIDE.get(field, {})
    changed = identity(resolve(TrainingSection(**{field: OTHER[field]}, **beside))) != identity(
        resolve(TrainingSection(**beside))
    )
    assert changed == (field in IDENTITY_FIELDS)


def test_only_what_trains_no_other_numbers_is_left_out_of_the_identity():
    assert set(OTHER) - set(IDENTITY_FIELDS) == {
        "preset", "algorithm", "total_steps", "num_envs", "device", "checkpoint_interval", "max_runtime_seconds",
        "num_workers", "threads", "cuda_graph", "metrics_interval", "evaluation_interval", "evaluation_goals",
        "evaluation_unseen_goals", "publish_interval",
        "contribution_max_lag", "contribution_check_share", "contribution_rollback", "trusted_contributors",
        "keep_checkpoints", "keep_milestones", "stream", "stream_port", "stream_top_k",
    }  # fmt: skip


def test_a_benchmark_replaces_the_presets_tasks():
    assert resolve(TrainingSection(preset="tiny", benchmark="mt50")).tasks == MT50


@pytest.mark.parametrize(
    ("benchmark", "total", "batch", "buffer", "updates", "evaluation"),
    [("MT10", 20_000_000, 1280, 1_000_000, 0.1, 200_000), ("MT50", 100_000_000, 6400, 5_000_000, 0.02, 1_000_000)],
)
def test_mclean_has_the_numbers_of_the_authors_code(benchmark, total, batch, buffer, updates, evaluation):
    training = resolve(TrainingSection(preset="mclean", benchmark=benchmark))
    assert (training.total_steps, training.batch_size, training.buffer_size) == (total, batch, buffer)
    assert (training.updates_per_step, training.evaluation_interval) == (updates, evaluation)
    assert training.random_steps == 4_000 * len(training.tasks)
    assert (training.grad_clip, training.adam_eps, training.critic_net) == (1.0, 1e-5, "heads")


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
    training = resolve(TrainingSection(preset=preset))
    assert {name: getattr(training, name) for name in GUIDES[preset]} == GUIDES[preset]
    assert training.tasks == MT10
    if preset != "debug":
        assert (training.actor_hidden, training.critic_hidden) == ((256, 256), (1024, 1024, 1024))
        assert (training.evaluation_interval, training.evaluation_goals) == (200_000, 50)
        guide = resolve(TrainingSection())
        others = set(Training.model_fields) - set(GUIDES[preset]) - {"preset"}
        assert [name for name in others if getattr(training, name) != getattr(guide, name)] == []


def test_best_updates_twice_a_vector_step_and_brc_eight_times():
    best, brc = (resolve(TrainingSection(preset=name)) for name in ("best", "brc"))
    assert (best.updates_per_step, brc.updates_per_step) == (0.2, 0.8)
    assert resolve(TrainingSection(preset="best", benchmark="MT50")).updates_per_step == 0.04
    for one in (best, brc):
        assert (one.critic_net, one.critic_loss, one.value_bins, one.value_limit) == (
            "residual",
            "categorical",
            101,
            10.0,
        )
    assert (brc.total_steps, brc.batch_size, brc.buffer_size, brc.random_steps) == (3_000_000, 1024, 2_000_000, 25_000)


def test_every_preset_has_its_sentence():
    assert list(ABOUT) == list(PRESETS)


def test_what_grows_with_the_tasks_gives_way_to_the_user():
    training = resolve(TrainingSection(preset="mclean", tasks=("reach-v3",), batch_size=64))
    assert (training.batch_size, training.buffer_size, training.updates_per_step) == (64, 100_000, 1.0)


def test_nets_that_do_not_fit_together_are_refused():
    assert "need one width" in refusal(critic_net="residual", critic_hidden=(64, 32))
    assert "needs critic_net residual" in refusal(critic_loss="categorical")
    assert refusal(critic_net="transformer")


def test_mistakes_are_answered_with_the_nearest_name():
    assert 'did you mean "tiny"' in refusal(preset="tinny")
    assert 'did you mean "reach-v3"' in refusal(tasks=["reech-v3"])
    assert 'did you mean "MT10"' in refusal(benchmark="MT11")


def test_a_batch_smaller_than_the_tasks_is_refused_with_the_number_to_use():
    assert "batch_size 3 is smaller than the number of tasks 10" in refusal(batch_size=3)


def test_benchmark_and_tasks_exclude_each_other():
    assert "exclude each other" in refusal(benchmark="MT10", tasks=["reach-v3"])


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
        {"tasks": ["reach-v3", "reach-v3"]},
        {"device": "tpu"},
        {"actor_hidden": []},
        {"buffer_size": 20},
        {"batchsize": 3},
    ],
)
def test_impossible_values_are_refused(fields):
    assert refusal(**fields)


def test_a_login_node_needs_neither_torch_nor_numpy_to_check_a_config():
    code = "import sys, trainer.config; sys.exit(bool({'torch', 'numpy', 'metaworld', 'mujoco'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
