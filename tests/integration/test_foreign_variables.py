"""Variables that notebooks, shells and sites set for other programs: no command of ours ends by one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from daemons import PATIENCE_S

pytest.importorskip("torch")
pytest.importorskip("matplotlib")

HOSTILE = {
    "MPLBACKEND": "module://nobodys_notebook.backend_inline",
    "MUJOCO_GL": "bogus",
    "CUDA_VISIBLE_DEVICES": "",
    "PYTHONWARNINGS": "error",
    "WANDB_MODE": "bogus",
    "WANDB_SILENT": "maybe",
    "WANDB_CONSOLE": "bogus",
    "WANDB_INIT_TIMEOUT": "soon",
    "TQDM_DISABLE": "maybe",
    "TQDM_MININTERVAL": "soon",
    "TORCH_LOGS": "bogus",
    "COLUMNS": "bogus",
}
#: A training of the arm that evaluates, then what is done with it.
TRAIN = """trainer train --preset debug --set env=arm --set num_envs=2 --set total_steps=64 --set random_steps=16
    --set checkpoint_interval=64 --set metrics_interval=32 --set evaluation_interval=64 --set evaluation_goals=1
    --run-dir run"""
AFTER = ("trainer plot run --out curves.png", "trainer wandb run")


def typed(command, folder, hostile):
    """(exit code, output) of a command, with these variables beside a shell's own."""
    environ = {name: value for name, value in os.environ.items() if name not in HOSTILE} | hostile
    program, *words = command.split()
    done = subprocess.run(
        [sys.executable, "-m", program, *words],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def go_through(folder, hostile):
    pytest.importorskip("wandb")
    for command in (TRAIN, *AFTER):
        code, said = typed(command, folder, hostile)
        assert code == 0, f"{command}: {said}"
        assert "Traceback" not in said, f"{command}: {said}"


@pytest.mark.long
def test_no_command_ends_by_a_variable_that_was_set_for_others(tmp_path):
    go_through(tmp_path, HOSTILE)
    assert (tmp_path / "curves.png").stat().st_size > 0
