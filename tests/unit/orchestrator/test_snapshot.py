"""`code.snapshot`: what is copied of the user's own program, when, and where jobs start."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders import NOW, no_code, token
from daemons import PATIENCE_S
from refused import refused

from orchestrator.config import RunConfig, parse_config
from orchestrator.decisions.models import Submit
from orchestrator.errors import ConfigError
from orchestrator.run import snapshot
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.rundir import Run, RunDir, program_folder
from orchestrator.run.submission import make_job_folder

PROGRAM = {"train.py": "print(1)", "lib/model.py": "V = 1", "notes.log": "x", ".gitignore": "*.log"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A program in a repository, with one commit."""
    written(tmp_path / "p", PROGRAM)
    git(tmp_path / "p", "init", "-q")
    git(tmp_path / "p", "add", ".")
    git(tmp_path / "p", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first")
    return tmp_path / "p"


def written(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    return done.stdout.strip()


def config_with(setting: Any, **more: Any) -> RunConfig:
    value = {"run_name": "toy", "executor": "local", "command": ["python3", "train.py"], "code": {"snapshot": setting}}
    return parse_config({**value, **more}, "c.json")


def run_dir_in(folder: Path) -> RunDir:
    run_dir = RunDir(folder / "runs/toy")
    prepare_folder(run_dir)
    return run_dir


def begun(folder: Path, setting: Any = True, *, renew: bool = False, name: str = "c.json") -> tuple[Run, RunDir]:
    run_dir = run_dir_in(folder)
    config, environ = config_with(setting), {"PATH": os.environ["PATH"]}
    return begin(config, folder / name, run_dir, environ, NOW, renew_code=renew, fix=no_code), run_dir


def copied(run: Run, run_dir: RunDir) -> dict[str, str]:
    assert run.snapshot is not None
    top = run_dir.code / run.snapshot.program
    return {str(path.relative_to(top)): path.read_text() for path in top.rglob("*") if path.is_file()}


def test_it_has_what_git_does_not_ignore_as_it_is_now_and_says_of_which_commit(folder: Path) -> None:
    written(folder, {"lib/model.py": "V = 2", "new.py": "new"})
    (folder / "run.sh").write_text("#!/bin/sh")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("train.py")

    run, run_dir = begun(folder)

    expected = {"train.py": "print(1)", "lib/model.py": "V = 2", "new.py": "new", ".gitignore": "*.log"}
    assert copied(run, run_dir) == expected | {"run.sh": "#!/bin/sh", "link": "print(1)"}
    top = program_folder(run, run_dir)
    assert [os.access(top / name, os.X_OK) for name in ("run.sh", "new.py")] == [True, False]
    assert os.readlink(top / "link") == "train.py"
    assert run.snapshot is not None
    assert (run.snapshot.commit, run.snapshot.is_changed) == (git(folder, "rev-parse", "HEAD"), True)
    assert "+V = 2" in (run_dir.code / f"{run.snapshot.program}.diff").read_text()
    modes = {oct(path.stat().st_mode & 0o077) for path in (top, *top.rglob("[!l]*"))}
    assert modes == {"0o0"}, "the owner's alone"


def test_an_edit_reaches_no_job_before_it_is_renewed(folder: Path) -> None:
    first, run_dir = begun(folder)
    written(folder, {"train.py": "print(2)"})

    again, _ = begun(folder)
    made = make_job_folder(again, run_dir, Submit(0, 0, token(0)))

    assert again.snapshot == first.snapshot
    started_in = Path(json.loads((Path(made.job_dir) / "job.json").read_text())["folder"])
    assert (started_in / "train.py").read_text() == "print(1)"
    assert again.revision == first.revision
    renewed, _ = begun(folder, renew=True)
    assert (program_folder(renewed, run_dir) / "train.py").read_text() == "print(2)"
    assert (started_in / "train.py").read_text() == "print(1)", "a job may be running there"
    assert renewed.revision == first.revision + 1
    other, _ = begun(folder, setting="lib")
    assert copied(other, run_dir) == {"model.py": "V = 1"}
    none, _ = begun(folder, setting=False)
    assert (none.snapshot, program_folder(none, run_dir)) == (None, folder)


def test_of_a_commit_it_has_the_whole_repository_and_nothing_newer(folder: Path) -> None:
    written(folder, {"train.py": "print(2)", "new.py": "new"})

    run, run_dir = begun(folder, "git")

    assert copied(run, run_dir) == {name: text for name, text in PROGRAM.items() if name != "notes.log"}
    (folder / "runs").rename(folder.parent / "runs")
    inside, run_dir = begun(folder / "lib", "git")
    assert inside.snapshot is not None
    assert (inside.snapshot.start, program_folder(inside, run_dir).name) == ("lib", "lib")
    assert copied(inside, run_dir).keys() == {"train.py", "lib/model.py", ".gitignore"}


def test_without_git_hidden_files_environments_and_runs_stay_out(tmp_path: Path) -> None:
    written(tmp_path, {"train.py": "1", ".secret": "x", "__pycache__/a.pyc": "x", "data/a.txt": "1"})
    written(tmp_path, {"venv/pyvenv.cfg": "", "venv/lib/a.py": "x", "runs/other/run.json": "{}"})
    (tmp_path / "data/large.bin").write_bytes(bytes(snapshot.LARGEST_BYTES + 1))

    run, run_dir = begun(tmp_path)

    assert copied(run, run_dir) == {"train.py": "1", "data/a.txt": "1"}
    assert run.snapshot is not None
    assert (run.snapshot.commit, run.snapshot.is_changed) == ("", False)
    [note] = snapshot.notes(config_with(True), tmp_path, RunDir(tmp_path / "elsewhere"), ["train.py"], renew=False)
    assert "data/large.bin (10 MiB)" in note


def test_what_cannot_be_copied_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = run_dir_in(folder)

    def why(setting: Any, where: Path = folder, script: str = "train.py") -> str:
        with pytest.raises(ConfigError) as error:
            snapshot.notes(config_with(setting), where, run_dir, [script], renew=True)
        return error.value.id

    assert why("nowhere") == "snapshot.no-folder"
    assert why("git", folder.parent) == "snapshot.no-commit"
    assert why(True, script="notes.log") == "snapshot.no-script"
    assert why(True, script="../other.py") == "snapshot.no-script"
    with refused("config.snapshot-of-the-trainer"):
        parse_config({"code": {"snapshot": True}}, "c.json")
    run, _ = begun(folder)
    program_folder(run, run_dir).rename(folder / "gone")
    with refused("snapshot.gone", name="toy"):
        begun(folder)
    monkeypatch.setattr(snapshot, "MOST_FILES", 2)
    assert why(True) == "snapshot.too-much"
