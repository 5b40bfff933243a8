from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator import cli, errors
from orchestrator.errors import AnchorlegError, UnknownRun
from orchestrator.hosts import ticking
from orchestrator.run.rundir import RunDir


def subclasses() -> list[type[AnchorlegError]]:
    return [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, AnchorlegError) and value is not AnchorlegError
    ]


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


def test_every_error_has_an_exit_code_of_its_own_and_its_line_in_the_tree() -> None:
    codes = [kind.exit_code for kind in subclasses()]
    assert len(set(codes)) == len(codes)
    for kind in subclasses():
        assert f"{kind.__name__:<20}{kind.exit_code}" in str(errors.__doc__)


def test_the_tree_names_only_errors_that_exist() -> None:
    named = {line.split()[1] for line in str(errors.__doc__).splitlines() if line.startswith("    ") and "──" in line}
    assert named == {kind.__name__ for kind in subclasses()}


@pytest.mark.parametrize("kind", subclasses())
def test_a_known_error_is_one_sentence_and_its_code(
    kind: type[AnchorlegError], capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(kind("the field x is wrong; write y.")) == kind.exit_code
    assert capsys.readouterr().err == "orchestrator: the field x is wrong; write y.\n"


def test_a_priority_below_zero_is_no_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("priority", "-1", "slow", "--run", "nobody") == UnknownRun.exit_code
    assert "nobody" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(OSError(28, "No space left on device", "/runs/x/run.json")) == errors.StorageError.exit_code
    assert capsys.readouterr().err == "orchestrator: /runs/x/run.json: No space left on device.\n"


def test_an_interruption_is_130() -> None:
    assert raising(KeyboardInterrupt()) == 130


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["status", "--config", "nowhere.json"], 2, "there is no such config file"),
        (["status", "nobody"], 8, 'no run called "nobody"'),
        (["status"], 8, "which run?"),
        (["stop", "x", "--config", "y"], 2, "either a run's name or --config"),
        (["stop", "x", "--grace", "inf"], 2, "--grace: give the seconds"),
        (["start", "--set", "seed"], 2, "--set path.to.field=value"),
        (["render", "--config", "good.json", "--slot", "9"], 2, "slots 0 to 0"),
        (["render", "--config", "wrong.json"], 2, 'did you mean "slots"?'),
        (["render", "--config", "good.json", "--time-limit", "1:30", "--executor", "local"], 2, "too short"),
        (["start", "--config", "good.json", "--for", "soon"], 2, "--for soon: write a time above zero"),
        (["start", "--config", "good.json", "--for", "0"], 2, "--for 0: write a time above zero"),
        (["start", "--config", "good.json", "--for", "infinite"], 2, "--for infinite: write a time above zero"),
        (
            ["start", "--config", "good.json", "--dry-run", "--for", "9999999-0"],
            2,
            "--for 9999999-0: that is more than ten years",
        ),
        (["status", "--config", "good.json"], 8, "has no run yet"),
        (["start", "--config", "good.json", "--via", "cron"], 2, "orchestrator tick NAME >>$HOME/NAME.log 2>&1"),
        (["start", "--config", "good.json", "--via", "at"], 2, '--via at: write "foreground" or "daemon"'),
        (["start", "--config", "good.json", "--slots", "3", "--ddp-world-size", "4"], 2, "give one of them"),
        (["start", "--config", "good.json", "--set", "slots=3", "--ddp-world-size", "4"], 2, "--set slots=3 ask for"),
    ],
)
def test_what_users_get_wrong_is_one_sentence(
    words: list[str],
    code: int,
    said: str,
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
    assert said in err
    assert "Traceback" not in err
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
    monkeypatch.setattr(ticking, "tick", lambda folder, _out: ticked.append(folder))
    (tmp_path / "runs" / "mt10").mkdir(parents=True)
    (tmp_path / "scratch").symlink_to("runs")
    monkeypatch.chdir(tmp_path / "runs")
    for named in ("mt10", "../runs/mt10", tmp_path / "scratch" / "mt10"):
        assert run("tick", "--run-dir", str(named)) == 0
    assert ticked == [RunDir(tmp_path.resolve() / "runs" / "mt10")] * 3


def test_no_error_is_raised_outside_the_tree() -> None:
    """A `raise ValueError` in a function that users reach must be caught in the same package."""
    source = ast.parse(inspect.getsource(cli))
    raised = {
        ast.unparse(node.exc.func)
        for node in ast.walk(source)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
    }
    assert raised <= {kind.__name__ for kind in subclasses()}
