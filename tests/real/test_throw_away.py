"""Accounts that a test makes are gone after it, and those of a killed test once the next one begins."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path

import accounts
import pytest
from accounts import missing_account_parts, throw_away_accounts
from daemons import PATIENCE_S, started_at, wait_for
from needs import need
from relay import SUPPORT

#: What it has started lives on.
KILLED = """
import os, signal, subprocess
from accounts import throw_away_accounts
with throw_away_accounts("ann", "ben", env=os.environ) as (_, (ann, ben)):
    command = ["runuser", "-u", ann.name, "--", "sh", "-c", "echo; exec sleep 600"]
    child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    child.stdout.readline()  # it is hers from now on
    print(ann.name, ben.name, ann.home.parent, child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def known() -> set[str]:
    return {entry.pw_name for entry in pwd.getpwall()}


def test_accounts_of_a_killed_test_go_and_those_of_a_living_one_stay() -> None:
    need("accounts of a test's own", missing_account_parts())
    with throw_away_accounts("eve", env=os.environ) as (_, (eve,)):
        env = {**os.environ, "PYTHONPATH": str(SUPPORT)}
        killed = subprocess.run(
            [sys.executable, "-c", KILLED], env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        ann, ben, folder, child = killed.stdout.split()
        assert known() >= {ann, ben, eve.name}, killed.stderr

        with throw_away_accounts(env=os.environ):
            assert not known() & {ann, ben}
            assert not Path(folder).exists()
            assert eve.name in known()
            assert eve.run("true").returncode == 0
        wait_for(lambda: started_at(int(child)) is None, "the end of what it had started")
    assert eve.name not in known()


def test_the_folder_that_keeps_accounts_out_is_named_with_its_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(prefix="al-") as closed:
        monkeypatch.setattr(accounts, "REPOSITORY", Path(closed) / "checkout")
        (Path(closed) / "checkout").mkdir()
        assert f"{closed}/checkout that others can read: {closed} has mode 0700" in missing_account_parts()
