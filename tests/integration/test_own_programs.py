"""A program of one's own is given its params, goes on where there is more to do, and keeps what it may keep."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from daemons import PATIENCE_S, started_at
from relay import NewRelay, Relay

from orchestrator.config import parse_config
from orchestrator.decisions.models import Submit, make_token
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.rundir import Run, RunDir
from orchestrator.run.submission import make_job_folder

COMMAND = ["python3", "./count.py", "@{total}"]
#: Says what it was given, and whose `trainer` it finds where packages are installed: behind PYTHONPATH.
LOOKS_AROUND = """
import json, os, sys
sys.path.append("installed")
import anchorleg.job, orchestrator.integrations.checkpointer, trainer
given = [name for name in os.environ if "PYTHONPATH" in name]
json.dump({"trainer": trainer.__file__, "path": os.environ["PYTHONPATH"], "given": given}, open("seen.json", "w"))
"""
#: Without the packages of our own environment.
ALONE = [sys.executable, "-S", "look.py"]


def checkpoints(relay: Relay, slot: int = 0) -> list[int]:
    """The steps of a slot's checkpoints. Errors: ValueError where something else lies beside them."""
    found = (relay.run_dir / "slots" / str(slot)).glob("attempts/*/checkpoints/*")
    return sorted(int(path.name) for path in found)


def tidied(relay: Relay) -> None:
    """Wait until the newest job has ended, which tidies up after it has written its end."""
    shim = relay.read("claim", relay.attempts()[-1])["pid"]
    relay.wait_for(lambda: started_at(shim) is None, "the end of the last job")


@pytest.mark.long
def test_a_finished_run_is_lengthened_by_another_total_and_says_how(new_relay: NewRelay) -> None:
    relay = new_relay(command=COMMAND, params={"total": 10}, slots=2, slot_overrides={"1": {"total": 20}})
    assert relay.run("start").code == 0
    relay.assert_exactly_once(10, 0)
    relay.assert_exactly_once(20, 1)

    again = relay.run("start")

    assert again.code == 0
    assert "toy is finished. To continue a slot, give it other params or another command: " in again.out
    assert "`orchestrator start toy --set params.NAME=…`" in again.out
    assert relay.attempts(0) == relay.attempts(1) == [0]
    rehearsed = relay.run("start", "toy", "--dry-run")
    assert "toy is finished. To continue a slot" in rehearsed.out

    longer = relay.run("start", "toy", "--set", "params.total=30")

    assert longer.code == 0, longer.words
    assert "is finished. To continue a slot" not in longer.out
    relay.assert_exactly_once(30, 0)
    assert relay.read("parent.json", 1)["step"] == 10
    relay.assert_exactly_once(20, 1)  # its own total was not changed
    assert relay.attempts(1) == [0]


@pytest.mark.long
def test_only_the_newest_checkpoints_stay_over_all_jobs(new_relay: NewRelay) -> None:
    """Each job is asked as it begins, and hands over after its first five steps, or a few more."""
    short = {"max_runtime_seconds": 0.01}
    relay = new_relay(
        command=COMMAND, params={"total": 200}, relay={"keep_checkpoints": 2}, training=short, pace_s=0.01
    )

    done = relay.run("start")

    assert done.code == 0, done.words
    assert len(relay.attempts()) > 3
    tidied(relay)
    last = [relay.read("parent.json", relay.attempts()[-1])["step"], 200]
    assert checkpoints(relay) == last
    assert [n for _, n in relay.journal(0)] == list(range(1, 201))


def looking_around(folder: Path) -> None:
    """A program beside which its person has installed a package of the name of one of ours."""
    (folder / "look.py").write_text(LOOKS_AROUND)
    (folder / "installed" / "trainer").mkdir(parents=True)
    (folder / "installed" / "trainer" / "__init__.py").touch()


def run_as_on_slurm(folder: Path, setup: list[str], **config: Any) -> Run:
    """One job of a run, as its script would run on a node; sbatch is there and not asked."""
    (folder / "bin").mkdir()
    (folder / "bin" / "sbatch").touch(mode=0o755)
    environ = {"PATH": f"{folder}/bin:/usr/bin:/bin"}
    run_dir = RunDir(folder / "run")
    prepare_folder(run_dir)
    value = {"run_name": "toy", "executor": "slurm", "python": sys.executable, "slurm": {"setup": setup}, **config}
    run = begin(parse_config(value, "c.json"), folder / "c.json", run_dir, environ, time.time())
    job = make_job_folder(run, run_dir, Submit(0, 0, make_token(0, 0, "0" * 8)))
    subprocess.run(["bash", job.script], cwd=job.job_dir, env=environ, check=True, timeout=PATIENCE_S)
    return run


def test_a_program_finds_its_own_packages_and_of_ours_what_is_for_it(new_relay: NewRelay) -> None:
    relay = new_relay(command=ALONE)
    looking_around(relay.folder)

    done = relay.run("start")

    assert done.code == 0, done.words
    seen = json.loads((relay.folder / "seen.json").read_text())
    assert seen["trainer"].endswith("installed/trainer/__init__.py")
    code = json.loads((relay.run_dir / "run.json").read_text())["code"]
    assert seen["path"] == f"{relay.run_dir}/code/{code}/for-programs"


@pytest.mark.parametrize("added", ["", "/apps/scipy/site-packages:/apps/more"])
def test_what_the_setup_put_on_pythons_path_is_there_after_ours(tmp_path: Path, added: str) -> None:
    looking_around(tmp_path)
    setup = ["set -euo pipefail", *([f"export PYTHONPATH={added}"] if added else [])]

    run = run_as_on_slurm(tmp_path, setup, command=ALONE)

    seen = json.loads((tmp_path / "seen.json").read_text())
    ours = f"{tmp_path}/run/code/{run.code}/for-programs"
    assert seen["path"] == (f"{ours}:{added}" if added else ours)
    assert seen["given"] == ["PYTHONPATH"]
    assert seen["trainer"].endswith("installed/trainer/__init__.py")


def test_the_trainer_sees_the_runs_own_code_and_nothing_of_the_setup(tmp_path: Path) -> None:
    python = tmp_path / "python3"
    others = f'*) exec {sys.executable} "$@" ;;'
    python.write_text(f'#!/bin/sh\ncase "$*" in "-P -m trainer "*) echo "$PYTHONPATH" >seen ;; {others} esac\n')
    python.chmod(0o755)

    run = run_as_on_slurm(tmp_path, ["export PYTHONPATH=/apps"], python=str(python), training={"preset": "tiny"})

    assert (tmp_path / "seen").read_text() == f"{tmp_path}/run/code/{run.code}\n"


@pytest.mark.long
def test_jobs_run_the_copy_of_the_program_until_it_is_renewed(new_relay: NewRelay) -> None:
    relay = new_relay(
        code={"snapshot": True}, command=COMMAND, params={"total": 60}, pace_s=0.05,
        training={"max_runtime_seconds": 1},
    )  # fmt: skip
    relay.spawn("start")
    relay.wait_for(lambda: relay.attempts() == [0, 1], "the second job")
    source = (relay.folder / "count.py").read_text().replace("saved = save()\nreport()", "print('edited')\nsave()")
    (relay.folder / "count.py").write_text("raise SystemExit(3)\n")

    relay.wait_for(lambda: relay.children[0].poll() is not None, "the end of the run")

    assert checkpoints(relay)[-1] == 60
    (relay.folder / "count.py").write_text(source)
    for words, is_edited in ((["params.total=70"], False), (["params.total=80", "--renew-code"], True)):
        assert relay.run("start", "toy", "--set", *words).code == 0
        assert ("edited" in relay.run("logs", "0").out) is is_edited
    assert checkpoints(relay)[-1] == 80
