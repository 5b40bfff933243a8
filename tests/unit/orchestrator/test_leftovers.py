"""`clean` and `status --disk`: what a run folder takes, and what may be removed."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from builders import NOW, a_job, a_run, a_slot, no_code, token
from refused import refused

from orchestrator.config import parse_config
from orchestrator.decisions.models import SubmissionState, Submit
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.ledger import save_ledger
from orchestrator.run.leftovers import clean, disk_view
from orchestrator.run.rundir import RunDir
from orchestrator.run.submission import make_job_folder

TOY: dict[str, Any] = {"run_name": "toy", "executor": "local", "command": ["python3", "toy.py"], "slots": 2}


def made(tmp_path: Path, **config: Any) -> RunDir:
    """Slot 0 has had three jobs, and its fourth is live, with an older copy of code; slot 1 has had two. Each attempt
    saved a checkpoint. Everything is an hour old.
    """
    run_dir = RunDir(tmp_path / "runs/toy")
    prepare_folder(run_dir)
    run = begin(parse_config(TOY | config, "c.json"), tmp_path / "c.json", run_dir, {}, NOW, fix=no_code)
    older = run.model_copy(update={"code": "used-by-a-job"})
    for slot, attempt in ((0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)):
        make_job_folder(older if attempt == 3 else run, run_dir, Submit(slot, attempt, token(slot, attempt)))
        folder = run_dir.attempt(slot, attempt)
        (folder / "checkpoints" / str(10 * (attempt + 1))).mkdir(parents=True)
        (folder / "claim").write_text("{}")
        (folder / "exit.json").write_text("{}")
    for name in ("used-by-a-job", "0" * 16, "program-1"):
        (run_dir.code / name).mkdir()
        (run_dir.code / name / "a.py").write_text("x" * 50_000)
    (run_dir.code / "program-1.diff").write_text("x")
    ended = SubmissionState.ENDED
    ledger = a_run(
        a_slot(0).with_attempt(a_job(token(0, 3)), number=3),
        a_slot(1).with_attempt(a_job(token(1, 1), state=ended), number=1),
        run_id=run.run_id,
    )
    save_ledger(run_dir, ledger, NOW)
    hour_ago = os.stat(tmp_path).st_mtime - 3600
    for path in (*run_dir.path.rglob("*"),):
        os.utime(path, (hour_ago, hour_ago), follow_symlinks=False)
    return run_dir


def names(run_dir: RunDir, **more: Any) -> set[str]:
    return {str(Path(one.path).relative_to(run_dir.path)) for one in disk_view(run_dir, **more).leftovers}


JOBS = {f"jobs/{token(slot, attempt)}" for slot, attempt in ((0, 0), (0, 1), (0, 2), (1, 0))}
CODE = {f"code/{'0' * 16}", "code/program-1", "code/program-1.diff"}


def test_what_live_jobs_use_and_logs_show_stays(tmp_path: Path) -> None:
    run_dir = made(tmp_path)

    assert names(run_dir, older_than_s=60) == JOBS | CODE
    assert names(run_dir) == set(), "seven days are kept"
    os.utime(run_dir.job(token(0, 0)) / "job.sh")
    assert f"jobs/{token(0, 0)}" not in names(run_dir, older_than_s=0), "a controller may be at it"
    os.utime(run_dir.job(token(0, 0)) / "job.sh", (NOW, NOW))
    assert names(run_dir, older_than_s=60, larger_than=40_000) == CODE - {"code/program-1.diff"}
    clean(run_dir, disk_view(run_dir, older_than_s=60).leftovers)
    assert {path.name for path in run_dir.jobs.iterdir()} == {token(0, 3), token(1, 1)}
    assert {path.name for path in run_dir.code.iterdir()} == {"used-by-a-job", "0123456789abcdef"}


def test_checkpoints_go_where_it_is_asked_for_and_no_job_is(tmp_path: Path) -> None:
    run_dir = made(tmp_path)

    assert names(run_dir, older_than_s=60, keep=1) == JOBS | CODE | {"slots/1/attempts/0/checkpoints/10"}
    clean(run_dir, disk_view(run_dir, older_than_s=60, keep=1).leftovers)
    left = sorted(int(path.name) for path in run_dir.slot(1).glob("attempts/*/checkpoints/*"))
    assert left == [20]
    with refused("clean.keep-of-the-trainer"):
        disk_view(made(tmp_path / "2", command=None, training={"preset": "tiny"}), keep=1)


def test_the_parts_add_up_to_what_the_folder_takes(tmp_path: Path) -> None:
    run_dir = made(tmp_path)
    files = [path for path in run_dir.path.rglob("*") if not path.is_dir()]

    view = disk_view(run_dir)

    assert view.parts["code"] >= 3 * 50_000
    assert view.total >= sum(path.lstat().st_blocks * 512 for path in files)
    assert json.loads(view.model_dump_json())["parts"].keys() >= {"slots", "jobs", "code", "history"}
