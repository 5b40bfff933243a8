"""What a restricted key may ask for: our server. And the line in authorized_keys that says so."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from syncd.access.gate import authorized_keys_line, check
from syncd.errors import ConfigError, RefusedError

SHARED = "/home/me/project/runs/mt10/shared"
KEY = f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43} ben@laptop"


@pytest.mark.parametrize(
    "command",
    [
        None, "", "sh", "syncd", "syncd watch", "xsyncd serve", "sftp-server", "scp -t x", "rsync", "rsync --server",
        "rsync --daemon", "rsync --server --sender -tre.iLsfxCIvu . v1/runs/", "/usr/bin/rsync --server -tr . v1/x",
        "rsync --server -tr . v1/inbox/alice/new/", "syncd 'serve", "syncd\x00serve", f"syncd serve {'a' * 5000}",
        "syncd serve\nid", "sh -c 'syncd serve'", "'' serve",
    ],
)  # fmt: skip
def test_what_is_refused(command: str | None):
    with pytest.raises(RefusedError):
        check(command, "alice", SHARED)


@given(st.text(max_size=80))
def test_nothing_is_let_through_but_words_that_begin_with_our_server(command: str):
    try:
        check(command, "alice", SHARED)
    except RefusedError:
        return
    program, verb, *_ = shlex.split(command)
    assert (program.rpartition("/")[2], verb) == ("syncd", "serve")


_PATHS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1, max_size=30).map(
    lambda text: f"/{text}"
)


@given(_PATHS, _PATHS)
def test_the_line_says_to_the_shell_what_was_meant(program: str, shared: str):
    try:
        line = authorized_keys_line("ben", KEY, [program], shared)
    except ConfigError:
        assert not (program + shared).isprintable()
        return
    before, after = line.removeprefix('restrict,command="').rsplit('" ssh-ed25519 ', 1)
    assert after == f"{KEY.split()[1]} ben"
    assert _unquoted_by_sshd(f'"{before}" rest') == (shlex.join([program, "gate", "ben", "--shared", shared]), " rest")


def _unquoted_by_sshd(text: str) -> tuple[str, str]:
    """What sshd makes of a quoted option, and what follows it (auth-options.c: opt_dequote)."""
    out, index = "", 1
    while text[index] != '"':
        if text[index : index + 2] == '\\"':
            index += 1
        out += text[index]
        index += 1
    return out, text[index + 1 :]


@pytest.mark.parametrize(
    ("who", "key", "shared"),
    [
        ("ben,command=sh", KEY, "/s"), ("ben", "ssh-ed25519", "/s"), ("ben", "ssh-ed25519 AAAA====", "/s"),
        ("ben", "-----BEGIN OPENSSH PRIVATE KEY-----", "/s"), ("ben", f"restrict {KEY}", "/s"),
        ("ben", KEY.replace("ssh-ed25519", "ssh-rsa", 1), "/s"), ("ben", KEY, "relative"), ("ben", KEY, "/two\nlines"),
    ],
)  # fmt: skip
def test_a_line_is_not_made_of_what_is_none(who: str, key: str, shared: str):
    with pytest.raises(ConfigError):
        authorized_keys_line(who, key, ["/bin/syncd"], shared)


@pytest.mark.parametrize(
    "command", ["syncd serve --shared /x", "'/home/a b/syncd' serve", "syncd serve --contributor bob"]
)
def test_our_server_whatever_folder_and_name_are_said(command: str):
    check(command, "alice", SHARED)


@pytest.mark.parametrize(("who", "shared"), [("../bob", SHARED), ("", SHARED), (".alice", SHARED), ("alice", "shared")])
def test_a_line_that_was_written_wrong_lets_nobody_in(who: str, shared: str):
    with refused("gate.bad-line"):
        check("syncd serve", who, shared)
