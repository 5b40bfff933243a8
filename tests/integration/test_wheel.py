"""The built wheel in an empty environment: what a login node gets."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import PATIENCE_S, WORK_S
from policies import RUN, publish_one

from syncd.store import Shared, newest

ROOT = Path(__file__).resolve().parents[2]

#: Of the base on the disk, without pip and what Python compiles.
MOST_BYTES = 90e6
PROGRAM = """
import os, pathlib
attempt = pathlib.Path(os.environ["ANCHORLEG_ATTEMPT_DIR"])
(attempt / "ran").write_text("yes")
"""


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=WORK_S, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    venv.create(folder / "venv", with_pip=True)
    wheel = next(folder.glob("anchorleg-*.whl"))
    run(folder / "venv/bin/python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel, cwd=folder)
    return folder / "venv/bin"


def clean_env(bin_folder: Path, home: Path) -> dict[str, str]:
    return {"PATH": f"{bin_folder}:/usr/bin:/bin", "HOME": str(home), "XDG_STATE_HOME": str(home / "state")}


@pytest.mark.long
def test_the_base_has_neither_torch_nor_numpy_and_stays_small(bin_folder: Path, tmp_path: Path) -> None:
    env = clean_env(bin_folder, tmp_path)
    said = run(bin_folder / "orchestrator", "--help", cwd=tmp_path, env=env).stdout
    assert "start" in said
    code = "import importlib.util as u; print([name for name in ('torch', 'numpy') if u.find_spec(name)])"
    assert run(bin_folder / "python", "-c", code, cwd=tmp_path).stdout.strip() == "[]"
    (packages,) = bin_folder.parent.glob("lib/*/site-packages")
    files = [path for path in packages.rglob("*") if path.relative_to(packages).parts[0] != "pip" and path.is_file()]
    assert 30e6 < sum(path.stat().st_blocks * 512 for path in files if path.suffix != ".pyc") < MOST_BYTES


@pytest.mark.long
def test_a_foreign_program_is_started_to_its_end(bin_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    config = {
        "run_name": "toy",
        "executor": "local",
        "lead_seconds": 1,
        "slurm": {"time_limit": "0:01:00"},
        "command": ["python3", "program.py"],
    }
    (tmp_path / "cluster_config.json").write_text(json.dumps(config))
    run(bin_folder / "orchestrator", "start", cwd=tmp_path, env=clean_env(bin_folder, tmp_path))
    assert (tmp_path / "runs/toy/slots/0/attempts/0/ran").read_text() == "yes"


@pytest.mark.long
def test_the_templates_and_all_commands_are_in_it(bin_folder: Path, tmp_path: Path) -> None:
    env = clean_env(bin_folder, tmp_path)
    (tmp_path / "cluster_config.json").write_text((ROOT / "cluster_config.json").read_text())
    script = run(bin_folder / "orchestrator", "render", "--executor", "slurm", cwd=tmp_path, env=env).stdout
    assert "#SBATCH --signal=B:USR2@120" in script
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0
    video = ROOT / "examples" / "video.yaml"
    assert (
        "--signal"
        in run(
            bin_folder / "orchestrator", "render", "--config", video, "--executor", "slurm", cwd=tmp_path, env=env
        ).stdout
    )
    for name in ("orchestrator", "syncd", "trainer", "viewer"):
        assert os.access(bin_folder / name, os.X_OK)
        assert "anchorleg" in run(bin_folder / name, "--version", cwd=tmp_path, env=env).stdout


def test_a_policy_is_mirrored_and_checked_without_numpy(bin_folder: Path, tmp_path: Path) -> None:
    env = clean_env(bin_folder, tmp_path)
    published = publish_one(Shared(tmp_path / "shared"), 1, 1)
    run(bin_folder / "syncd", "pull", tmp_path / "shared", tmp_path / "mirror", cwd=tmp_path, env=env)
    assert newest(Shared(tmp_path / "mirror").slot(RUN, 0)) == published


def test_the_page_is_in_it_with_its_licences_and_is_served(bin_folder: Path, tmp_path: Path) -> None:
    code = "import pathlib, viewer\n"
    code += "paths = [*(pathlib.Path(viewer.__file__).parent / 'static').rglob('*.*')]\n"
    code += "print(len(paths), sum(path.suffix == '.LICENSE' for path in paths))"
    assert run(bin_folder / "python", "-c", code, cwd=tmp_path).stdout.split() == ["15", "2"]
    (tmp_path / "mirror" / "v1" / "runs").mkdir(parents=True)
    env = clean_env(bin_folder, tmp_path)
    said = run(bin_folder / "viewer", str(tmp_path / "mirror"), "--json", cwd=tmp_path, env=env).stdout
    assert json.loads(said)["source"] == "mirror"
    command = [bin_folder / "viewer", tmp_path / "mirror", "--port", "0", "--no-open"]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            address = next(found for line in child.stdout if (found := re.search(r"http://[^#\s]+", line)))
            with urllib.request.urlopen(address[0], timeout=PATIENCE_S) as answer:
                assert b"<html" in answer.read()
        finally:
            child.send_signal(signal.SIGINT)
    assert child.returncode == 0


def test_the_trainer_says_what_it_lacks_where_torch_is_not_installed(bin_folder: Path, tmp_path: Path) -> None:
    command = [bin_folder / "trainer", "train", "--preset", "tiny"]
    env = clean_env(bin_folder, tmp_path)
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=WORK_S, check=False)
    assert done.returncode not in {0, 1}
    assert "pip install '.[trainer]'" in done.stderr
    assert "Traceback" not in done.stderr
