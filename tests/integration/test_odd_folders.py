"""Programs run in the folder of the user's config, and a user's folder holds anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import PATIENCE_S
from relay import NewRelay, Relay

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.long
@pytest.mark.trainer
def test_a_users_own_package_called_trainer_is_never_taken_for_ours(tmp_path: Path) -> None:
    (tmp_path / "trainer").mkdir()
    (tmp_path / "trainer/__init__.py").write_text("raise SystemExit('the wrong package')\n")
    settings = ["total_steps=40", "random_steps=40", "num_workers=1", "num_envs=1", "evaluation_goals=0"]
    words = [word for setting in settings for word in ("--set", setting)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "trainer", "train", "--preset", "tiny", "--run-dir", "out", *words],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out/slots/0/attempts/0/progress.json").exists()


@pytest.mark.long
def test_a_full_disk_does_not_stop_a_hand_over(tmp_path: Path) -> None:
    """The shim asks its program to hand over even where it can write nothing: not the file, not a line, no record."""
    program = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGUSR2, lambda *_: sys.exit(75))\n"
        "open('listening', 'w').close()\n"
        "time.sleep(600)\n"
    )
    (tmp_path / "program.py").write_text(program)
    driver = (
        "import builtins, errno, sys\n"
        "from pathlib import Path\n"
        "from orchestrator import shim\n"
        "def full(*_, **__): raise OSError(errno.ENOSPC, 'No space left on device')\n"
        "class Full(shim.Shim):\n"
        "    def look(self, program, deadline):\n"
        "        if Path('listening').exists():\n"
        "            shim.write_json = Path.touch = builtins.print = full\n"
        "            deadline = 0\n"
        "        super().look(program, deadline)\n"
        "spec = {'run_dir': 'run', 'slot': 0, 'attempt': 0, 'token': 's0-a0-00000000', 'limit_s': 60, 'lead_s': 1,\n"
        "        'command': [sys.executable, 'program.py'], 'folder': '.'}\n"
        "sys.exit(Full(Path('.'), spec, dict(shim.os.environ)).run())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", driver], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 70, done.stderr  # the shim could not record the end; the program had handed over
    assert "Traceback" not in done.stderr


#: As on a machine whose locale has no UTF-8: Python takes names of files for ASCII.
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
UTF8 = {"LC_ALL": "C.UTF-8"}


def said(relay: Relay, *words: str, **env: str) -> tuple[int, bytes]:
    """How `orchestrator WORDS` ended, in an ordinary folder, and all that it printed."""
    command = [sys.executable, "-m", "orchestrator", *words]
    done = subprocess.run(
        command, cwd="/", env={**relay.env, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "locale"),
    [
        (b"latin \xfc", ASCII),
        pytest.param("latin \xfc".encode(), ASCII, marks=pytest.mark.long),
        pytest.param(b"latin \xfc", UTF8, marks=pytest.mark.long),
    ],
)
def test_a_run_works_in_a_folder_of_any_bytes_in_any_locale(
    new_relay: NewRelay, name: bytes, locale: dict[str, str]
) -> None:
    relay = new_relay(f"{os.fsdecode(name)}/odd", total=10, pace_s=0.0)
    beside = new_relay("plain", total=10, pace_s=0.0)
    beside.env["XDG_STATE_HOME"] = relay.env["XDG_STATE_HOME"]

    assert said(relay, "start", "--config", str(relay.config), **locale)[0] == 0
    assert beside.run("start").code == 0

    relay.assert_exactly_once(10)
    assert {line.split(b"\t")[0] for line in said(relay, "runs", **locale)[1].splitlines()} == {b"odd", b"plain"}
    assert [said(relay, "status", one)[0] for one in ("odd", "plain")] == [0, 0]
    for words in (("start", "odd"), ("logs", "0", "odd"), ("explain", "0", "odd")):
        code, out = said(relay, *words, **UTF8)  # what is written in one locale is read in another one
        assert (code, b"Traceback" in out) == (0, False), (words, out)
    assert json.loads(said(relay, "status", "odd", "--json", **locale)[1])["run_dir"] == str(relay.run_dir)
