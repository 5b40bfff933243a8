from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator import cli
from orchestrator.errors import UnknownRun
from orchestrator.hosts import ticking
from orchestrator.run.rundir import RunDir


def code_of(act: Callable[[], object]) -> int:
    try:
        cli.main(act)
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def run(*words: str) -> int:
    return code_of(lambda: cli.app(words))


def raising(error: BaseException) -> int:
    def fail() -> None:
        raise error

    return code_of(fail)


@pytest.mark.parametrize("as_json", [False, True])
def test_a_known_error_is_one_sentence_with_its_identifier_and_its_code(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["orchestrator", *(["--json"] if as_json else [])])
    error = UnknownRun("run.not-named", known="a\x1b[1m, b")
    assert raising(error) == 8
    said = capsys.readouterr()
    assert said.err == f"orchestrator: {error} [run.not-named]\n"
    assert "\x1b" not in said.err
    assert ([json.loads(line) for line in said.out.splitlines()]) == ([error.as_json()] if as_json else [])


@pytest.mark.parametrize(
    ("words", "code", "name"),
    [
        (["status", "--config", "nowhere.json"], 2, "config.no-file"),
        (["status", "nobody"], 8, "run.unknown"),
        (["status"], 8, "run.not-named"),
        (["stop", "x", "--config", "y"], 2, "cli.name-and-config"),
        (["stop", "x", "--grace", "inf"], 2, "cli.grace"),
        (["start", "--set", "seed"], 2, "cli.no-value"),
        (["start", "other", "--config", "good.json", "--set", "slots=2"], 2, "start.other-name"),
        (["status", "--price", "nan"], 2, "cli.price"),
        (["render", "--config", "good.json", "--slot", "9"], 2, "slot.unknown"),
        (["render", "--config", "wrong.json"], 2, "config.unknown-field"),
        (
            ["render", "--config", "good.json", "--time-limit", "1:30", "--executor", "local"],
            2,
            "config.walltime-too-short",
        ),
        (["start", "--config", "good.json", "--for", "soon"], 2, "cli.for"),
        (["start", "--config", "good.json", "--for", "0"], 2, "cli.for"),
        (["start", "--config", "good.json", "--for", "infinite"], 2, "cli.for"),
        (["start", "--config", "good.json", "--dry-run", "--for", "9999999-0"], 2, "cli.for-too-long"),
        (["status", "--config", "good.json"], 8, "run.not-begun"),
        (["start", "--config", "good.json", "--via", "at"], 2, "cli.via"),
        (["start", "--config", "good.json", "--slots", "3", "--ddp-world-size", "4"], 2, "cli.two-numbers-of-slots"),
        (
            ["start", "--config", "good.json", "--set", "slots=3", "--ddp-world-size", "4"],
            2,
            "cli.two-numbers-of-slots",
        ),
    ],
)
def test_what_users_get_wrong_is_one_sentence(
    words: list[str],
    code: int,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "good.json").write_text("{}")
    (tmp_path / "wrong.json").write_text('{"slot": 1}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert run(*words) == code
    err = capsys.readouterr().err
    assert err.endswith(f" [{name}]\n")
    assert len(err.splitlines()) == 1


def test_render_prints_a_script_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.json").write_text('{"executor": "slurm"}')
    before = sorted(tmp_path.rglob("*"))
    assert run("render", "--config", str(tmp_path / "c.json")) == 0
    assert capsys.readouterr().out.startswith("#!/bin/bash\n#SBATCH --job-name=mt10-0\n")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_is_one_run_by_whatever_way_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm tells jobs by their whole paths: below another spelling of the folder a tick would find none of them."""
    ticked: list[RunDir] = []
    monkeypatch.setattr(ticking, "tick", ticked.append)
    (tmp_path / "runs" / "mt10").mkdir(parents=True)
    (tmp_path / "scratch").symlink_to("runs")
    monkeypatch.chdir(tmp_path / "runs")
    for named in ("mt10", "../runs/mt10", tmp_path / "scratch" / "mt10"):
        assert run("tick", "--run-dir", str(named)) == 0
    assert ticked == [RunDir(tmp_path.resolve() / "runs" / "mt10")] * 3
