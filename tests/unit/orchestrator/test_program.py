from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from refused import refused

from orchestrator.config import parse_config
from orchestrator.run.starting import PythonFacts, check_script, python_facts, script_of, unusable_python


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python3 train.py", "train.py"),
        ("/opt/venv/bin/python3.11 -u -W ignore sub/train.py --lr 3", "sub/train.py"),
        ("bash -euo pipefail run.sh", "run.sh"),
        ("bash -o errexit +O extglob --norc run.sh", "run.sh"),
        ("./run.sh a", "./run.sh"),
        ("python3 -um package", None),
        ("bash -lc true", None),
        ("python3 -", None),
        ("python3", None),
        ("torchrun train.py", None),
    ],
)
def test_which_file_a_command_runs(command: str, script: str | None) -> None:
    assert script_of(command.split()) == script


def test_a_misspelt_script_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    check_script(parse_config({"command": ["python3", "train.py"]}, "here"), tmp_path)
    with refused("command.no-script", script="trian.py", folder=tmp_path, near=re.compile('"train.py"')):
        check_script(parse_config({"command": ["python3", "trian.py"]}, "here"), tmp_path)
    with refused("command.no-script", script="x.sh", folder=tmp_path / "nowhere"):
        check_script(parse_config({"command": ["bash", "nowhere/x.sh"]}, "here"), tmp_path)


class TestThePythonOfJobs:
    """What can be said of it before the first job."""

    @staticmethod
    def python(folder: Path, version: str | None) -> PythonFacts:
        """An interpreter whose torch has this version.py; None: it has no torch."""
        if version is not None:
            (folder / "lib" / "torch").mkdir(parents=True)
            (folder / "lib" / "torch" / "__init__.py").write_text("raise SystemExit('it takes seconds')")
            (folder / "lib" / "torch" / "version.py").write_text(version)
        command = folder / "python"
        command.write_text(f'#!/bin/sh\nPYTHONPATH={folder}/lib exec /usr/bin/python3 "$@"\n')
        command.chmod(0o755)
        return python_facts(str(command), {"PATH": "/usr/bin:/bin"})

    @pytest.mark.parametrize(
        ("version", "torch", "name"),
        [
            ("cuda = None\nhip = None\n", "CPU", "python.no-cuda"),
            ("cuda = None\n", "CPU", "python.no-cuda"),
            ("cuda = '12.4'\n", "GPU", None),
            ("cuda = None\nhip = '6.0'\n", "GPU", None),
            ("a broken file", "unknown", None),
            (None, "none", "python.no-torch"),
        ],
    )
    def test_is_known_without_loading_torch(
        self, tmp_path: Path, version: str | None, torch: str, name: str | None
    ) -> None:
        python = self.python(tmp_path, version)
        assert (python.torch, python.shim_ok) == (torch, True)
        error = unusable_python(parse_config({}, "here"), python, "slurm")
        assert (error.id if error else None) == name

    @pytest.mark.parametrize(
        ("config", "torch"),
        [
            ({"slurm": {"gpus": 0}}, "CPU"),
            ({"training": {"device": "cpu"}}, "CPU"),
            ({"role": "actors", "actors": {"shared_dir": "/x"}, "slurm": {"gpus": 1}}, "CPU"),
            ({"command": ["true"]}, "none"),
            ({"container": {"image": "/image.sif"}}, "none"),
            ({"python": "/only/on/nodes/python"}, "none"),
        ],
    )
    def test_is_no_obstacle(self, config: dict[str, Any], torch: str) -> None:
        told = PythonFacts(command="/venv/python", version="3.11.7", torch=torch)
        assert unusable_python(parse_config(config, "here"), told, "slurm") is None

    def test_nobody_knows_it_where_the_setup_decides(self) -> None:
        loaded = parse_config({"slurm": {"setup": ["module load python"]}}, "here")
        assert unusable_python(loaded, PythonFacts(command="python", torch="CPU"), "slurm") is None
        assert unusable_python(parse_config({}, "here"), PythonFacts(command="python", torch="CPU"), "local") is None
