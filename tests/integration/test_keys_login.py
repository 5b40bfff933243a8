"""The one login without a key, against a server that asks as sites do: a password, questions, both, or neither."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import paramiko
import pytest
from daemons import PATIENCE_S
from refused import refused

from syncd.access import keys
from syncd.access.keys import Endpoint, HostKey

PASSWORD, CODE = "secret of the test", "123456"
PUBLIC = f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43} me@laptop"


@dataclass
class Site(paramiko.ServerInterface):
    """Takes the logins in `steps`, one after the other; runs commands in `home`."""

    steps: tuple[str, ...]
    home: Path
    attempts: list[str] = field(default_factory=list)
    passed: int = 0

    def get_allowed_auths(self, username: str) -> str:
        return self.steps[self.passed] if self.passed < len(self.steps) else ""

    def check_auth_password(self, username: str, password: str) -> int:
        return self._judge("password", password == PASSWORD)

    def check_auth_interactive(self, username: str, submethods: str) -> paramiko.server.InteractiveQuery | int:
        if self.get_allowed_auths(username) != "keyboard-interactive":
            return paramiko.AUTH_FAILED
        return paramiko.server.InteractiveQuery("Site", "Two things, please.", ("Password: ", False), ("Code: ", True))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return self._judge("keyboard-interactive", list(responses) == [PASSWORD, CODE])

    def _judge(self, kind: str, is_right: bool) -> int:
        self.attempts.append(kind)
        if not is_right or self.get_allowed_auths("") != kind:
            return paramiko.AUTH_FAILED
        self.passed += 1
        return paramiko.AUTH_SUCCESSFUL if self.passed == len(self.steps) else paramiko.AUTH_PARTIALLY_SUCCESSFUL

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._run, args=(channel, command.decode()), daemon=True).start()
        return True

    def _run(self, channel: paramiko.Channel, command: str) -> None:
        said = b""
        while data := channel.recv(4096):
            said += data
        done = subprocess.run(
            ["sh", "-c", command], input=said, capture_output=True, timeout=PATIENCE_S, check=False,
            env={**os.environ, "HOME": str(self.home)},
        )  # fmt: skip
        channel.sendall_stderr(done.stderr)
        channel.send_exit_status(done.returncode)
        channel.close()


class Door:
    """A listening site. `where`: how to get there."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._key = paramiko.ECDSAKey.generate()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._transports: list[paramiko.Transport] = []
        self.host_key = HostKey(self._key.get_name(), self._key.get_base64())
        self.where = Endpoint("127.0.0.1", self._listening.getsockname()[1], "me", "", ())
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            transport = paramiko.Transport(sock)
            transport.add_server_key(self._key)
            self._transports.append(transport)
            transport.start_server(server=self.site, event=threading.Event())

    def close(self) -> None:
        self._listening.close()
        for transport in self._transports:
            transport.close()


@pytest.fixture
def open_door(tmp_path: Path) -> Iterator:
    doors: list[Door] = []

    def open_it(*steps: str) -> Door:
        doors.append(Door(Site(steps, tmp_path)))
        return doors[-1]

    yield open_it
    for door in doors:
        door.close()


def answering(asked: list[tuple[str, bool]], password: str = PASSWORD):
    def ask(question: str, is_seen: bool) -> str:
        asked.append((question, is_seen))
        return CODE if "Code" in question else password

    return ask


@pytest.mark.parametrize(
    "steps", [("password",), ("keyboard-interactive",), ("password", "keyboard-interactive")], ids="+".join
)
def test_one_login_installs_the_key(open_door, tmp_path: Path, steps: tuple[str, ...]):
    door = open_door(*steps)
    asked: list[tuple[str, bool]] = []
    assert keys.offered_key(door.where) == door.host_key
    keys.install_public_key(door.where, door.host_key, PUBLIC, answering(asked))
    assert (tmp_path / ".ssh" / "authorized_keys").read_text() == PUBLIC + "\n"
    assert door.site.attempts == list(steps)
    assert [is_seen for question, is_seen in asked if "assword" in question] == [False] * len(steps)
    assert any("Two things" in question for question, _ in asked) == ("keyboard-interactive" in steps)


@pytest.mark.parametrize("steps", [("password",), ("keyboard-interactive",)], ids="+".join)
def test_a_wrong_answer_is_given_once(open_door, tmp_path: Path, steps: tuple[str, ...]):
    door = open_door(*steps)
    with refused("login.refused") as error:
        keys.install_public_key(door.where, door.host_key, PUBLIC, answering([], "a wrong password"))
    assert door.site.attempts == list(steps)
    assert "a wrong password" not in str(error.value)
    assert not (tmp_path / ".ssh").exists()


def test_a_site_without_passwords_is_said_and_nothing_is_asked(open_door):
    door = open_door("publickey")
    asked: list[tuple[str, bool]] = []
    with refused("login.no-password", kinds="publickey"):
        keys.install_public_key(door.where, door.host_key, PUBLIC, answering(asked))
    assert asked == []
    assert door.site.attempts == []


def test_no_password_goes_to_another_host_than_was_shown(open_door):
    door = open_door("password")
    asked: list[tuple[str, bool]] = []
    other = HostKey(door.host_key.kind, paramiko.ECDSAKey.generate().get_base64())
    with refused("host.key-changed"):
        keys.install_public_key(door.where, other, PUBLIC, answering(asked))
    with refused("host.other-key"):
        keys.offered_key(door.where, [other])
    assert asked == []
    assert door.site.attempts == []
