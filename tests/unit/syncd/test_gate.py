"""What a restricted key may ask for: examples, and properties of everything that is let through."""

from __future__ import annotations

import posixpath
import shlex
import shutil
import subprocess

import pytest
from daemons import PATIENCE_S
from hypothesis import given
from hypothesis import strategies as st

from syncd.access.gate import RefusedError, Rsync, Serve, authorized_keys_line, decide
from syncd.errors import ConfigError
from syncd.wire.refusals import PARTIAL_FOLDER

SHARED = "/home/me/project/runs/mt10/shared"
KEY = f"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{'A' * 43} ben@laptop"
READ = "rsync --server --sender -tre.iLsfxCIvu --timeout=20 ."
WRITE = "rsync --server -tre.iLsfxCIvu --timeout=20 --partial-dir .part --ignore-existing ."


def asked(command: str | None, who: str = "alice") -> Serve | Rsync:
    return decide(command, who, SHARED)


@pytest.mark.parametrize(
    "command", ["syncd serve --shared /x", "'/home/a b/syncd' serve", "syncd serve --contributor bob"]
)
def test_our_server_whatever_folder_and_name_are_said(command: str):
    assert asked(command) == Serve()


@pytest.mark.parametrize(
    ("path", "folder", "name"),
    [
        ("v1/runs/", ("v1", "runs"), ""),
        ("v1/runs/r-1/0", ("v1", "runs", "r-1"), "0"),
        (f"{SHARED}/v1/runs/r-1/0/LATEST.json", ("v1", "runs", "r-1", "0"), "LATEST.json"),
        ("project/runs/mt10/shared/v1/runs/", ("v1", "runs"), ""),
        ("shared/v1/runs/r-1/", ("v1", "runs", "r-1"), ""),
        ("v1/inbox/alice/verdicts/", ("v1", "inbox", "alice", "verdicts"), ""),
    ],
)
def test_what_may_be_read(path: str, folder: tuple[str, ...], name: str):
    wanted = asked(f"{READ} {path}")
    assert isinstance(wanted, Rsync)
    assert (wanted.reads, wanted.folder, wanted.name) == (True, folder, name)
    assert wanted.options == ("-tre.iLsfxCIvu", "--timeout=20")


def test_what_may_be_written():
    for path, name in (("v1/inbox/alice/new/", ""), ("v1/inbox/alice/new/r-1/0/", "r-1/0")):
        wanted = asked(f"{WRITE} {path}")
        assert wanted == Rsync(
            reads=False,
            folder=("v1", "inbox", "alice", "new"),
            name=name,
            options=("-tre.iLsfxCIvu", "--timeout=20", f"--partial-dir={PARTIAL_FOLDER}", "--ignore-existing"),
        )
    assert isinstance(asked("rsync --server -r -t . v1/inbox/alice/new/"), Rsync), "as openrsync says it"


@pytest.mark.parametrize(
    "command",
    [
        None, "", "sh", "syncd", "syncd watch", "xsyncd serve", "sftp-server", "scp -t x", "rsync", "rsync --server",
        "rsync --daemon", f"{READ}", f"{READ} v1/runs/ v1/runs/r-1/", f"{READ} v1/runs", f"{READ} v1/", f"{READ} .",
        f"{READ} v1/runs/../inbox/bob/", f"{READ} /etc/passwd", f"{READ} {SHARED}x/v1/runs/", f"{READ} v1/inbox/bob/",
        f"{READ} v1/inbox/alice/new/", f"{READ} v1/runs/.git/", f"{READ} 'v1/runs/a b'", f"{READ} other/v1/runs/",
        f"{READ} hared/v1/runs/", f"{READ} -- v1/runs/", f"{WRITE} v1/inbox/bob/new/", f"{WRITE} v1/inbox/alice/",
        f"{WRITE} v1/runs/", f"{WRITE} v1/inbox/alice/new/a/b/c/", f"{WRITE} v1/inbox/alice/verdicts/",
        "rsync --server --delete -tr . v1/inbox/alice/new/",
        "rsync --server -tre.i --partial-dir /tmp . v1/inbox/alice/new/",
        "rsync --server -trR . v1/inbox/alice/new/", "rsync --server --sender -trL . v1/runs/",
        "rsync --server --sender -trse.LsfxCIvu . v1/runs/", "rsync --server -tr --partial-dir . v1/inbox/alice/new/",
        "rsync --server -tr --files-from=- . v1/inbox/alice/new/",
        "rsync --server --sender -tr --files-from=/etc/x . v1/runs/",
        f"{READ} v1/runs/ 'unfinished", f"{READ} v1/runs/{'a' * 5000}", f"{READ} v1/runs/\nid", "syncd\x00serve",
    ],
)  # fmt: skip
def test_what_is_refused(command: str | None):
    with pytest.raises(RefusedError):
        asked(command)


@pytest.mark.parametrize(("who", "shared"), [("../bob", SHARED), ("", SHARED), (".alice", SHARED), ("alice", "shared")])
def test_a_line_that_was_written_wrong_lets_nobody_in(who: str, shared: str):
    with pytest.raises(RefusedError, match="authorized_keys"):
        decide("syncd serve", who, shared)


_WORD = st.one_of(
    st.sampled_from(
        ["rsync", "--server", "--sender", "-tr", "-trR", "-tre.iLsfxCIvu", ".", "..", "/", "v1/runs/",
        "v1/inbox/alice/new/",
         "v1/inbox/bob/new/", "v1/runs/../..", "--partial-dir", ".part", "--timeout=20", "--delete", "-a",
         "--files-from=-",
         "--from0", "v1//runs/", "v1/./runs/x", "v1/other/", f"{SHARED}/v1/runs/", f"{SHARED}/../x",
         "shared/v1/runs/",
         "v1/inbox/alice/new/../../bob/new/", "--log-file=/x", "syncd", "serve", "-e.i", "--bwlimit=9"]
    ),
    st.text(max_size=20),
)  # fmt: skip


@given(st.lists(_WORD, max_size=9).map(shlex.join) | st.text(max_size=80))
def test_nothing_that_is_let_through_leaves_its_walls(command: str):
    try:
        wanted = asked(command)
    except RefusedError:
        return
    if isinstance(wanted, Serve):
        return
    inside = posixpath.normpath(posixpath.join(*wanted.folder, wanted.name))
    assert inside == posixpath.join(*wanted.folder, wanted.name).rstrip("/")
    walls = ["v1/runs", "v1/inbox/alice/verdicts"] if wanted.reads else ["v1/inbox/alice/new"]
    assert any(posixpath.join(*wanted.folder, "").startswith(f"{wall}/") for wall in walls)
    assert not {"--delete", "-a"} & set(wanted.options)
    assert all(option.startswith("-") and " " not in option for option in wanted.options)


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


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen")
def test_ssh_takes_the_line_for_a_key_with_options(tmp_path):
    file = tmp_path / "authorized_keys"
    file.write_text(authorized_keys_line("ben", KEY, ['/a "quoted" \\ path/syncd'], "/with spaces/it's") + "\n")
    done = subprocess.run(
        ["ssh-keygen", "-l", "-f", file], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[2:] == ["ben", "(ED25519)"]


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
