"""The service files by the judgement of the real programs: plistutil, systemd-analyze, and a real `systemd --user`."""

from __future__ import annotations

import json
import os
import plistlib
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import PATIENCE_S, alone, started_at, wait_for
from needs import need
from systemd_user import SystemdUser, missing_systemd_parts, user_manager

from syncd.background import UNIT, Agent, plist_text, unit_text

ROOT = Path(__file__).resolve().parents[2]
#: One of each character that either format treats specially, and letters of several alphabets.
ODD = "a b&<>\"'\\%h$HOME;{x}#=:@ äß→日🦾"


@pytest.fixture
def systemd() -> Iterator[SystemdUser]:
    """Two managers of one user put services of one name into one control group, and end each other's."""
    need("a real systemd", missing_systemd_parts())
    try:
        with alone("systemd"), user_manager() as user:
            yield user
    except TimeoutError as error:
        need("a real systemd --user", [str(error)])


def an_agent(folder: Path, python: str = sys.executable) -> Agent:
    return Agent(python, f"me@host:/{ODD}", folder / ODD.replace("/", ""), folder / "log", {"PATH": f"/bin:/{ODD}"})


def test_plistutil_reads_what_was_meant(tmp_path: Path) -> None:
    need("plistutil", [] if shutil.which("plistutil") else ["plistutil"])
    agent = an_agent(tmp_path)
    (tmp_path / "agent.plist").write_bytes(plist_text(agent))
    for source, target, kind in (("agent", "binary", "bin"), ("binary", "back", "xml")):
        command = ["plistutil", "-i", f"{source}.plist", "-f", kind, "-o", f"{target}.plist"]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=PATIENCE_S)
    for name in ("binary", "back"):
        value = plistlib.loads((tmp_path / f"{name}.plist").read_bytes())
        assert value["ProgramArguments"] == agent.program
        assert value["EnvironmentVariables"] == dict(agent.environment)


def test_systemd_analyze_takes_the_units(systemd: SystemdUser, tmp_path: Path) -> None:
    unit = tmp_path / "anchorleg-odd.service"
    unit.write_bytes(unit_text(an_agent(tmp_path)))
    command = ["systemd-analyze", "verify", "--user", str(unit)]
    done = subprocess.run(command, env=systemd.env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr  # what else it says, each version of it says anew


def test_systemd_starts_exactly_the_words_that_were_meant(systemd: SystemdUser, tmp_path: Path) -> None:
    """A program in the interpreter's place writes down how it was called."""
    odd = tmp_path / "my 100% $HOME äß"
    odd.mkdir()
    witness = odd / "python3"
    code = f"import json,os,sys; json.dump([sys.argv, os.environ['PATH']], open({str(tmp_path / 'said')!r}, 'w'))"
    witness.write_text(f"#!{sys.executable}\n{code}\n")
    witness.chmod(0o755)
    agent = an_agent(tmp_path, str(witness))
    units = systemd.home / ".config/systemd/user"
    units.mkdir(parents=True)
    (units / UNIT).write_bytes(unit_text(agent))
    assert systemd.systemctl("daemon-reload").returncode == 0
    assert systemd.systemctl("start", UNIT).returncode == 0
    wait_for((tmp_path / "said").exists, "the witness")
    wait_for(lambda: (tmp_path / "said").stat().st_size, "its words")
    assert json.loads((tmp_path / "said").read_text()) == [agent.program, dict(agent.environment)["PATH"]]


def syncd(systemd: SystemdUser, *words: object) -> str:
    env = {**systemd.env, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "syncd", *map(str, words)]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_installed_restarted_after_a_crash_and_uninstalled_twice_over(systemd: SystemdUser, tmp_path: Path) -> None:
    shared, mirror = tmp_path / "shared", tmp_path / "mirror of 100%"
    (shared / "v1" / "runs").mkdir(parents=True)
    assert "syncd runs in the background" in syncd(systemd, "install", shared, mirror)

    def pid() -> int | None:
        return json.loads(syncd(systemd, "agent-status", "--json"))["pid"]

    first = pid()
    assert first is not None
    words = Path(f"/proc/{first}/cmdline").read_bytes().decode().split("\0")[:-1]
    assert words == [sys.executable, "-P", "-m", "syncd", "run-agent", str(shared), str(mirror)], shlex.join(words)
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: pid() not in {None, first}, "the restart, five seconds after the crash")

    crashed = pid()
    assert crashed is not None
    syncd(systemd, "install", shared, mirror)
    second = pid()
    assert second not in {None, crashed}
    assert started_at(crashed) is None
    assert systemd.systemctl("is-enabled", UNIT).stdout == "enabled\n"

    assert "no longer runs in the background" in syncd(systemd, "uninstall")
    assert second is not None
    assert started_at(second) is None
    assert "nothing to do" in syncd(systemd, "uninstall")
    assert "not installed" in syncd(systemd, "agent-status")
    assert not (systemd.home / ".config/systemd/user" / UNIT).exists()
