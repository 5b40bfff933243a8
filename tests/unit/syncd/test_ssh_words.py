"""What ssh says, as errors: recorded from OpenSSH, so that a sentence is about what really happened."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from daemons import PATIENCE_S
from hypothesis import given
from hypothesis import strategies as st
from needs import need

from syncd.errors import (
    LoginRefusedError,
    SecondFactorError,
    UnreachableError,
)
from syncd.remote import Remote
from syncd.transports import openssh as transports
from syncd.transports.openssh import OpensshTransport, explain, server_command, ssh_command, ssh_words

SAID = json.loads((Path(__file__).parents[2] / "fixtures/ssh/openssh-9.2p1.json").read_text())
UNKNOWN = "Connection closed by UNKNOWN port 65535\r\n"
MEANS = {
    "no folder": "server.not-started",
    "no command": "server.no-syncd",
    "not executable": "server.not-allowed",
    "unknown host key": "host.unknown",
    "changed host key": "host.not-pinned",
    "refused key": "login.key-refused",
    "second factor": "login.second-factor",
    "refused connection": "connection.port-closed",
    "name not found": "connection.unknown-host",
    "gate refuses": "server.refused-by-gate",
    "server gone": "connection.broke",
    "bad config": "ssh.own-config",
    "open key": "key.unprotected",
}


@pytest.mark.parametrize(
    ("code", "said", "name"),
    [
        *((SAID[case]["code"], SAID[case]["stderr"], MEANS[case]) for case in SAID),
        (1, "/usr/bin/rrsync error: SSH_ORIGINAL_COMMAND does not run rsync.", "server.failed"),
        (255, "Permission denied (publickey).", "connection.broke"),
        (143, "", "server.ended"),
        (255, f"Connection to UNKNOWN port 65535: Broken pipe\n{UNKNOWN}", "connection.broke-on-the-way"),
        (255, f"ssh: connect to host jump port 22: Connection refused\n{UNKNOWN}", "connection.broke-on-the-way"),
        (255, f"ssh: Could not resolve hostname jump: x\n{UNKNOWN}", "connection.broke-on-the-way"),
        (255, f"me@jump: Permission denied (publickey).\n{UNKNOWN}", "login.refused-on-the-way"),
        (255, f"me@jump: Permission denied (password).\n{UNKNOWN}", "login.refused-on-the-way"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_each_end_of_ssh_and_of_our_server_has_its_error(code: int, said: str, name: str) -> None:
    """Where the way ends before the place, the place is not blamed."""
    assert explain("cluster", code, said).id == name


def test_a_sites_banner_is_not_taken_for_words_of_ssh() -> None:
    banner = """****
NOTICE: each User account is personal; sharing it is not allowed. Permission denied (to strangers).
Too many authentication failures lock it. Permissions of files are too open? Mend them.
****
"""
    error = explain("cluster", 255, banner + "Timeout, server cluster.edu not responding.\r\n")
    assert type(error) is UnreachableError
    refused = "Received disconnect from 192.0.2.1 port 22:2: Too many authentication failures\r\n"
    assert type(explain("cluster", 255, banner + refused)) is LoginRefusedError


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ({}, "ssh cluster"),
        ({"user": "alice"}, "ssh alice@cluster"),
        ({"user": "alice", "port": 2222}, "ssh -p 2222 alice@cluster"),
        ({"ssh_config": Path("/home/alice/my config")}, "ssh -F '/home/alice/my config' cluster"),
    ],
)
def test_the_advice_is_a_command_whose_connection_syncd_finds(monkeypatch, words: dict, advice: str) -> None:
    """A connection that stays has a name that is made of the account and the port, too."""
    ends = []

    class EndedStream:
        def __init__(self, command, ended) -> None:
            ends.append(ended(255, "alice@cluster: Permission denied (keyboard-interactive).\r\n"))

    monkeypatch.setattr(transports, "ChildStream", EndedStream)
    monkeypatch.setattr(transports.Session, "__init__", lambda *_, **__: None)
    OpensshTransport(Remote(path="/srv", host="cluster", **words), "anna")
    [error] = ends
    assert type(error) is SecondFactorError
    assert str(error).endswith(f"then run `{advice}`)")


@pytest.mark.parametrize("kinds", ["publickey,keyboard-interactive", "gssapi-with-mic,publickey", "rm -rf"])
def test_where_a_key_may_still_be_tried_none_was_taken(kinds: str) -> None:
    assert type(explain("cluster", 255, f"me@cluster: Permission denied ({kinds}).\r\n")) is LoginRefusedError


@given(st.integers(0, 255) | st.none(), st.text(max_size=300))
def test_whatever_is_said_is_one_sentence(code: int | None, said: str) -> None:
    error = explain("cluster", code, said)
    assert len(str(error).splitlines()) == 1


@given(st.text(min_size=1, max_size=40).filter(str.isprintable))
def test_no_path_becomes_more_than_a_word_over_there(text: str) -> None:
    remote = Remote(host="cluster", path=f"/srv/{text}", command=f"/opt/{text}/syncd")
    assert shlex.split(server_command(remote)) == [f"/opt/{text}/syncd", "serve", "--shared", f"/srv/{text}"]


def test_one_try_one_key_and_the_pinned_host_keys_first(tmp_path: Path) -> None:
    remote = Remote(
        host="cluster", user="me", port=2222, path="/srv", key=tmp_path / "key%", known_hosts=tmp_path / "known hosts%"
    )
    assert "UserKnownHostsFile" not in " ".join(ssh_command(remote))  # nothing is pinned: as ~/.ssh/config says
    (tmp_path / "known hosts%").touch()
    words = ssh_command(remote)
    assert words[-3:-1] == ["--", "me@cluster"]
    assert {f'IdentityFile="{tmp_path}/key%%"', "IdentitiesOnly=yes"} <= set(words)
    assert f'UserKnownHostsFile="{tmp_path}/known hosts%%" ~/.ssh/known_hosts ~/.ssh/known_hosts2' in words
    assert {"BatchMode=yes", "StrictHostKeyChecking=yes"} <= set(words)


def test_our_words_are_stronger_than_what_the_users_config_says(tmp_path: Path) -> None:
    """By `ssh -G`, which prints what would be done."""
    need("ssh", [] if shutil.which("ssh") else ["ssh"])
    words = [word for word in ssh_words(Remote(host="h", path="/srv")) if "=" in word]
    ours = {name.lower(): value for name, _, value in (word.partition("=") for word in words)}
    config = tmp_path / "config"
    theirs = {"yes": "no", "no": "yes", "default": "none", "none": "x", "INFO": "QUIET"}
    config.write_text("".join(f"{name} {theirs.get(value, 7)}\n" for name, value in ours.items()))
    command = ssh_words(Remote(host="h", path="/srv", ssh_config=config))
    done = subprocess.run([*command, "-G", "h"], capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    told = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    same = {"true": "yes", "false": "no"}
    for name in told.keys() & ours.keys():
        assert same.get(told[name], told[name]) == ours[name], name
