from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from refused import refused

from orchestrator.config import parse_config
from orchestrator.run.starting import check_script, gpus_in_vain, has_torch_without_gpus, script_of


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


class TestGpusInVain:
    """A torch of the CPU alone, and a partition with GPUs."""

    @staticmethod
    def python(folder: Path, version: str | None) -> str:
        """An interpreter whose torch has this version.py; None: it has no torch."""
        if version is not None:
            (folder / "lib" / "torch").mkdir(parents=True)
            (folder / "lib" / "torch" / "__init__.py").write_text("raise SystemExit('it takes seconds')")
            (folder / "lib" / "torch" / "version.py").write_text(version)
        command = folder / "python"
        command.write_text(f'#!/bin/sh\nPYTHONPATH={folder}/lib exec /usr/bin/python3 "$@"\n')
        command.chmod(0o755)
        return str(command)

    @pytest.mark.parametrize(
        ("version", "is_without"),
        [
            ("cuda = None\nhip = None\n", True),
            ("cuda = None\n", True),
            ("cuda = '12.4'\n", False),
            ("cuda = None\nhip = '6.0'\n", False),
            ("a broken file", False),
            (None, False),
        ],
    )
    def test_is_told_without_loading_torch(self, tmp_path: Path, version: str | None, is_without: bool) -> None:
        python = self.python(tmp_path, version)
        assert has_torch_without_gpus(python) is is_without
        assert bool(gpus_in_vain(parse_config({}, "here"), python)) is is_without

    @pytest.mark.parametrize(
        "config",
        [
            {"slurm": {"gpus": 0}},
            {"command": ["true"]},
            {"training": {"device": "cpu"}},
            {"container": {"image": "/image.sif"}},
        ],
    )
    def test_concerns_our_trainer_on_a_gpu_alone(self, tmp_path: Path, config: dict[str, Any]) -> None:
        assert gpus_in_vain(parse_config(config, "here"), self.python(tmp_path, "cuda = None\n")) == ""

    def test_nobody_can_tell_where_the_setup_decides(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.python(tmp_path, "cuda = None\n")
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        loaded = parse_config({"slurm": {"setup": ["module load python"]}}, "here")
        assert gpus_in_vain(loaded, "python") == ""
        assert gpus_in_vain(parse_config({}, "here"), "python")
