"""What other people of the same machine see of a run, and can do to it."""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path

import pytest
from accounts import missing_account_parts, throw_away_accounts
from daemons import PATIENCE_S
from needs import need
from relay import PROGRAMS, NewRelay

from orchestrator.run.lease import living_owner
from orchestrator.run.rundir import RunDir, ask


def is_open(path: Path) -> bool:
    """Whether anybody but its owner may read it: its own mode, and those of the folders of the run above it."""
    run_dir = next(above for above in path.parents if (above / "run.json").exists())
    between = [path, *(above for above in path.parents if run_dir in above.parents)]
    return all(one.stat().st_mode & 0o044 for one in between)


def is_private(path: Path, run_dir: Path) -> bool:
    """Whether a file of a run has settings, scripts, or words of a job's output."""
    at_the_top = ("run.json", "ledger-", "events-", "controller.log")
    return (
        (path.parent == run_dir and path.name.startswith(at_the_top))
        or (run_dir / "slots" in path.parents and path.name == "config.json")
        or bool({run_dir / "jobs", run_dir / "requests"} & set(path.parents))
    )


@pytest.mark.long
def test_scripts_settings_and_output_of_jobs_are_nobody_elses(new_relay: NewRelay) -> None:
    before = os.umask(0o022)
    try:
        relay = new_relay(total=10)
        assert relay.run("start", "--via", "daemon").code == 0
        run_dir = RunDir(relay.run_dir)
        relay.wait_for(lambda: living_owner(run_dir) is None, "the controller's end")
        ask(run_dir.disk, run_dir.requests, "pause", now=time.time(), slots=(0,))
    finally:
        os.umask(before)
    relay.wait_for_supervisors()
    files = [path for path in relay.run_dir.rglob("*") if path.is_file() and not path.is_symlink()]
    private = [path for path in files if is_private(path, relay.run_dir)]
    names = {path.name for path in private}
    assert {"run.json", "job.sh", "job.json", "config.json", "1.json", "controller.log"} <= names
    assert {"ledger", "events"} <= {name.partition("-")[0] for name in names}
    assert [path for path in private if is_open(path)] == []


@pytest.mark.long
def test_another_account_reads_none_of_them_and_writes_nowhere() -> None:
    need("accounts of a test's own", missing_account_parts())
    with throw_away_accounts("ann", "eve", env=os.environ) as (_, (ann, eve)):
        shutil.copy(PROGRAMS / "count.py", ann.home)
        (ann.home / "data").mkdir()
        (ann.home / "data" / "pace.txt").write_text("0\n")
        run = ann.start(run_name="mine", executor="local", training={}, command=["python3", "./count.py", "10"])
        assert run.wait(PATIENCE_S) == 0, ann.said()
        run_dir = ann.home / "runs" / "mine"
        assert eve.run("ls", str(run_dir)).returncode == 0, "her home is one that others may enter"
        told = eve.run("find", str(run_dir), "-type", "f", "-readable").stdout.split()
        assert {path for path in map(Path, told) if is_private(path, run_dir)} == set()
        for path in (run_dir / "run.json", run_dir / "slots/0/config.json", next(run_dir.glob("jobs/*/job.sh"))):
            assert eve.run("cat", str(path)).returncode != 0
        assert eve.run("find", str(ann.home), "-writable", "!", "-type", "l").stdout == ""


@pytest.mark.parametrize("umask", [0o002, 0o000])
def test_a_member_of_the_groups_folder_edits_neither_the_code_of_a_run_nor_anything_else(umask: int) -> None:
    need("accounts of a test's own", missing_account_parts())
    before = os.umask(umask)
    try:
        with throw_away_accounts("ann", "eve", env=os.environ) as (group, (ann, eve)):
            lab = ann.home / "lab"
            lab.mkdir()
            shutil.chown(lab, ann.name, group)
            lab.chmod(0o2775)
            config = {"executor": "local", "training": {}, "command": ["true"], "run_dir": str(lab / "mine")}
            run = ann.start(run_name="mine", **config)
            assert run.wait(PATIENCE_S) == 0, ann.said()
            assert f"note: members of {group} can replace the contents of {lab}" in ann.said()
            code = next((lab / "mine" / "code").glob("[0-9a-f]*")) / "orchestrator" / "shim.py"
            assert code.is_file()
            assert eve.run("sh", "-c", f"echo >> {code}").returncode != 0
            assert eve.run("find", str(lab / "mine"), "-writable", "!", "-type", "l").stdout == ""
            own = (lab / "mine" / name for name in ("code", "slots", "lease", "jobs", "control"))
            assert {stat.S_IMODE(path.stat().st_mode) for path in own} == {0o2700}
            files = [path for path in (lab / "mine").iterdir() if path.is_file()]
            assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    finally:
        os.umask(before)


@pytest.mark.long
def test_what_a_crash_leaves_behind_has_no_secret_of_the_environment(new_relay: NewRelay) -> None:
    """Run folder, state folder, and what every command says of it; the shell's secrets are no business of a run."""
    names = ("WANDB_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "DATABASE_URL", "SSH_AUTH_SOCK")
    secret = "not-for-anybody"
    env = {**os.environ, **dict.fromkeys(names, secret)}
    relay = new_relay(env=env, command=["python3", "-c", "import nothing_of_that_name"])
    said = [relay.run("start").words]
    assert "nothing_of_that_name" in relay.status()["slots"][0]["why"]
    said += [relay.run(*words).words for words in (("status", "--json"), ("explain",), ("goodput",), ("doctor",))]
    assert [words for words in said if secret in words] == []
    files = [path for path in relay.folder.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert [path for path in files if secret.encode() in path.read_bytes()] == []


@pytest.mark.long
def test_a_folder_at_which_pythons_path_would_split_is_refused(new_relay: NewRelay) -> None:
    relay = new_relay(total=10, run_dir="runs/a:b")
    for words in (("start",), ("start", "--dry-run"), ("render",)):
        relay.run(*words).assert_refused(2, "runs/a:b", "[run-dir.separator]")
    assert not (relay.folder / "runs").exists()
