"""`viewer` on a login node: a socket for this account alone, the line for the laptop, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from builders import NOW
from daemons import PATIENCE_S, WORK_S, wait_for
from needs import need
from viewer_entrance import enter as show_token
from watched_runs import a_watched_run
from websockets.sync.client import unix_connect

REPOSITORY = Path(__file__).resolve().parents[2]
#: Nobody else's run is called so: a viewer's usual socket has its name, in a place that all checkouts share.
NAME = f"mt10-{secrets.token_hex(4)}"
ASKS = """
import os, socket, sys
os.setgid(65534), os.setuid(65534)
with socket.socket(socket.AF_UNIX) as sock:
    try:
        sock.connect(sys.argv[1])
    except PermissionError:
        print("refused")
    else:
        print("in")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    a_watched_run(tmp_path / NAME, NOW, name=NAME, slots=1, jobs=1)
    return tmp_path


@contextmanager
def a_login_viewer(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`viewer NAME WORDS` in a login by ssh, and what it printed."""
    env = {name: value for name, value in os.environ.items() if name not in {"DISPLAY", "WAYLAND_DISPLAY"}}
    env |= {"SSH_CONNECTION": "10.0.0.9 50022 10.0.0.1 22", "XDG_STATE_HOME": str(folder / "state")}
    output = folder / "output.txt"
    with output.open("w") as out:
        command = [sys.executable, "-m", "viewer", NAME, *words]
        env |= {"PYTHONPATH": str(REPOSITORY)}
        child = subprocess.Popen(command, cwd=folder, env=env, stdout=out, stderr=out, text=True)
    try:
        wait_for(lambda: "another name" in output.read_text() or child.poll() is not None, "the viewer's words")
        yield child, output.read_text()
    finally:
        child.kill()
        child.wait(PATIENCE_S)


def test_it_serves_on_a_socket_and_prints_the_tunnel_to_this_very_machine(folder: Path) -> None:
    path = folder / "p.sock"
    with a_login_viewer(folder, "--socket", str(path)) as (child, said):
        assert re.search(
            rf"^  ssh -o ExitOnForwardFailure=yes -N -L 9999:{path} \S+@{os.uname().nodename}$", said, re.MULTILINE
        )
        token = re.search(r"http://127\.0\.0\.1:9999/#(\S+)", said)
        assert token
        with unix_connect(str(path), uri="ws://localhost:9999/socket", origin="http://localhost:9999") as line:
            show_token(line, token[1])
            told: dict[str, Any] = {}
            while "is" not in told:  # word of agents may come before the first look
                told = json.loads(line.recv(PATIENCE_S))
            assert told["is"]["run"]["name"] == NAME
        child.send_signal(signal.SIGTERM)
        assert child.wait(PATIENCE_S) == 0
    assert not path.exists()


def inodes_of(pid: int) -> set[str]:
    """What a process has open."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found.add(os.readlink(link))
    return found


def test_by_default_a_login_opens_no_port(folder: Path) -> None:
    with a_login_viewer(folder) as (child, said):
        found = re.search(r"9999:(\S+\.sock)", said)
        assert found, said
        assert Path(found[1]).parent.stat().st_mode & 0o077 == 0
        inodes = inodes_of(child.pid)
        assert inodes
        tcp = Path(f"/proc/{child.pid}/net/tcp").read_text()
        listening = {f"socket:[{line.split()[9]}]" for line in tcp.splitlines()[1:] if line.split()[3] == "0A"}
        assert not inodes & listening
        child.send_signal(signal.SIGTERM)
        child.wait(PATIENCE_S)


def test_another_account_does_not_get_in(folder: Path) -> None:
    need("another account", [] if os.geteuid() == 0 else ["root"])
    with a_login_viewer(folder) as (child, said):
        found = re.search(r"9999:(\S+\.sock)", said)
        assert found, said
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(found[1])
        done = subprocess.run(
            [sys.executable, "-c", ASKS, found[1]], capture_output=True, text=True, timeout=WORK_S, check=True
        )
        assert done.stdout == "refused\n"
        child.send_signal(signal.SIGTERM)
        child.wait(PATIENCE_S)
