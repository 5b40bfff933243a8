"""`orchestrator -H HOST:DIR …`: the command of the other machine, through a real sshd."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from daemons import PATIENCE_S
from sshd import Sshd

PROGRAMS = Path(sys.executable).parent


@pytest.fixture
def type_there(new_sshd: Callable[..., Sshd], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Types words after `orchestrator`, at home."""
    shell = tmp_path / "shell"  # stands for a login shell whose profile knows where Anchorleg is
    shell.write_text(f'#!/bin/sh\n[ "$1" = -lc ] && PATH={PROGRAMS}:$PATH exec sh -c "$2"\n')
    shell.chmod(0o755)
    sshd = new_sshd(PermitUserEnvironment="yes")
    state = f'environment="XDG_STATE_HOME={tmp_path / "state"}"'
    home = sshd.new_client("laptop", options=f'environment="SHELL={shell}",{state}')
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {home.config} "$@"\n')
    ssh.chmod(0o755)
    env = {**home.env(), "PATH": f"{ssh.parent}:{os.environ['PATH']}"}

    def typed(*words: str) -> subprocess.CompletedProcess[str]:
        command = [PROGRAMS / "orchestrator", *words]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    return typed


def test_a_command_is_typed_in_the_folder_there_and_its_exit_code_comes_back(
    type_there: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    project = tmp_path / "a project"
    project.mkdir()
    config = {"run_name": "far", "executor": "local", "command": ["sh", "-c", "exit 0"]}
    (project / "cluster_config.json").write_text(json.dumps(config))
    there = f"cluster:{project}"

    assert type_there("-H", there, "status").returncode == 8
    started = type_there("-H", there, "start")
    status = type_there(f"--host={there}", "status", "far", "--json")

    assert started.returncode == 0, started.stderr
    assert json.loads(status.stdout)["run_dir"] == str(project / "runs/far")
    assert type_there("-H", "nowhere.invalid", "status").returncode == 255
