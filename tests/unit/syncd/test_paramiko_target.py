"""What ~/.ssh/config says, for a carrier that reads it itself."""

from __future__ import annotations

import socket
import struct
import threading
from pathlib import Path

import pytest
from refused import refused

from syncd.remote import Remote
from syncd.transports.paramiko import SshTarget, connect, target_of


def config(folder: Path, text: str) -> Path:
    path = folder / "config"
    path.write_text(text)
    return path


def test_the_config_fills_in_what_the_remote_does_not_say(tmp_path: Path) -> None:
    key, pinned = tmp_path / "key", tmp_path / "pinned"
    key.touch()
    pinned.touch()
    path = config(
        tmp_path,
        f"Host cluster\n  HostName login.cluster.edu\n  Port 2222\n  User me\n  IdentityFile {key}\n"
        f"  UserKnownHostsFile {tmp_path}/none {pinned}\n",
    )
    target = target_of(Remote(host="cluster", path="/srv", ssh_config=path))
    assert (target.host, target.port, target.user, target.key) == ("login.cluster.edu", 2222, "me", key)
    assert target.known_hosts == (pinned,)
    stated = target_of(
        Remote(host="cluster", user="you", port=22, key=tmp_path / "other", path="/srv", ssh_config=path)
    )
    assert (stated.port, stated.user, stated.key) == (22, "you", tmp_path / "other")


@pytest.mark.parametrize("rudely", [False, True], ids=["closed", "reset"])
@pytest.mark.parametrize("first", [b"", b"SSH-2.0-OpenSSH_9.2\r\n"], ids=["at once", "after its banner"])
def test_a_server_that_hangs_up_early_is_a_sentence_and_no_traceback(
    first: bytes, rudely: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def serve() -> None:
        client, _ = door.accept()
        with client:
            client.sendall(first)
            if rudely:  # socket(7): SO_LINGER with no time resets the connection
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=serve)
        thread.start()
        target = SshTarget("127.0.0.1", door.getsockname()[1], "me", None, ())
        with refused("connection.failed", place="cluster"):
            connect(target, "cluster")
        thread.join()
    assert caplog.records == []


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Host cluster\n  ProxyJump gate.edu\n", "paramiko.proxy"),
        ("Host cluster\n  ProxyCommand nc %h %p\n", "paramiko.proxy"),
        ("Host\n\x00", "paramiko.bad-config"),
        ("Host cluster\n  Port many\n", "paramiko.bad-config"),
        ("Nonsense", "paramiko.bad-config"),
        ("Match host cluster exec 'touch ran'\n  Port 3\n", "paramiko.match-exec"),
    ],
)
def test_what_paramiko_cannot_do_is_left_to_ssh(tmp_path: Path, monkeypatch, text: str, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = config(tmp_path, text)
    with refused(name):
        target_of(Remote(host="cluster", path="/srv", ssh_config=path))
    assert not (tmp_path / "ran").exists()
