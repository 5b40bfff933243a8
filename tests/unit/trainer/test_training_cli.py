from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import PATIENCE_S

from trainer.config.read import read_section
from trainer.errors import ConfigError

REPOSITORY = Path(__file__).parents[3]


def trainer(*arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, "-m", "trainer", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
        timeout=PATIENCE_S,
        check=False,
    )


def refusal(*arguments):
    with pytest.raises(ConfigError) as caught:
        read_section(*arguments)
    return caught.value


def a_file(tmp_path, value):
    path = tmp_path / "config.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def test_a_cluster_config_gives_its_training_section_and_name(tmp_path):
    path = a_file(tmp_path, {"run_name": "mine", "slots": 4, "training": {"preset": "tiny", "seed": 3}})
    asked = read_section(path, None, [])
    assert (asked.run_name, asked.training.preset, asked.training.seed) == ("mine", "tiny", 3)


def test_options_are_stronger_than_the_file(tmp_path):
    path = a_file(tmp_path, {"preset": "guide", "batch_size": 64, "benchmark": "MT50"})
    asked = read_section(path, "debug", ["batch_size=32", "training.tasks=reach-v3,push-v3", "device=cpu"])
    assert (asked.training.preset, asked.training.off_policy.batch_size, asked.training.device) == ("debug", 32, "cpu")
    assert asked.training.env.tasks == ("reach-v3", "push-v3")
    assert read_section(None, "debug", ["tasks=push-v3"]).training.env.tasks == ("push-v3",)


def test_mistakes_name_file_field_and_remedy(tmp_path):
    assert refusal(tmp_path / "absent.json", None, []).id == "config.unreadable"
    assert refusal(a_file(tmp_path, "{"), None, []).id == "config.document"
    for setting, wrong, field in (
        ("batchsize=3", "config.unknown-field", "batchsize"),
        ("total_steps=0", "config.field-kind", "total_steps"),
        ("seed=" + "[" * 100_000, "config.field-kind", "seed"),
        ("algorithm=dqn", "plugin.unknown", "algorithm"),
        ("batch_size", "cli.set-without-equals", None),
        *((text, "cli.set-without-field", None) for text in ("=3", "training.=3", "algorithm.=3")),
    ):
        error = refusal(None, None, [setting])
        assert (error.id, error.fields.get("field")) == (wrong, field)
        assert len(str(error)) < 200


def test_help_does_not_load_torch_or_the_simulator(tmp_path):
    code = (
        "import sys; sys.argv = ['trainer', '--help']; from trainer.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "sys.exit(3 if {'torch', 'mujoco', 'metaworld', 'numpy'} & set(sys.modules) else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, cwd=tmp_path, check=False
    )
    assert done.returncode == 0


def test_a_wrong_field_ends_with_one_sentence_and_code_2_before_anything_is_written(tmp_path):
    done = trainer("train", "--set", "batch_size=3", "--run-dir", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "[algorithm.batch-below-tasks]" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_run_folder_of_the_orchestrator_is_left_alone(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    done = trainer("train", "--run-dir", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "[run.kept-by-orchestrator]" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
