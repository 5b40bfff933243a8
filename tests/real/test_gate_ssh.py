"""A contributor's restricted key against a real sshd: the weights and the own inbox, and nothing else."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from daemons import wait_for
from policies import RUN
from ports import free_ports, listens
from restricted import SECRET, Friend

from syncd.laptop.mirror import blob_of
from syncd.shared.inbox import Inbox
from syncd.transports.factory import open_transport
from syncd.wire.refusals import REFUSED_EXIT_CODE


def refused(done: subprocess.CompletedProcess[bytes]) -> bool:
    """Whether the gate said no, and no secret came with it."""
    said = done.stdout + done.stderr
    return done.returncode != 0 and b"syncd gate:" in said and SECRET.encode() not in said


@pytest.mark.parametrize("which", ["openssh", "paramiko", "rsync"])
def test_the_weights_come_and_the_own_inbox_takes(friend: Friend, which: str):
    inbox = Inbox.of(friend.shared, "alice")
    friend.as_owner(lambda: inbox.write_verdict("a" * 64, accepted=False, reason="range", now=1.0))
    transport = open_transport(friend.remote(), which, client="somebody-else")  # type: ignore[arg-type]
    try:
        news = transport.listing()
        assert [verdict.reason for verdict in news.verdicts] == ["range"]
        transport.fetch(blob_of(friend.manifest), friend.here / "part")
        assert hashlib.sha256((friend.here / "part").read_bytes()).hexdigest() == friend.manifest.blob.sha256
        segment = friend.segment()
        foreign = friend.segment(2)
        renamed = friend.here / ("0" * 64)
        renamed.write_bytes(b"another content")
        receipts = transport.send([(segment, RUN, 0), (foreign, "nobody-0", 0), (renamed, RUN, 0)])
        assert [(one.stored, one.reason) for one in receipts] == [(True, ""), (False, "other_run"), (False, "damaged")]
        assert transport.facts().contributor == "alice"
    finally:
        transport.close()
    assert [path.name for path in inbox.waiting(RUN, 0, now=1.0)] == [segment.name]
    assert not (friend.shared.path / "v1" / "inbox" / "somebody-else").exists()


@pytest.mark.parametrize(
    "command",
    [
        "",
        "id",
        "sh -c id",
        "syncd",
        "syncd watch",
        "$(id)",
        "rsync --server --daemon .",
        "rsync --server --sender -logDtpre.iLsfxCIvu . /etc/passwd",
        "rsync --server --sender -tr . v1/runs/../../../secret",
        "rsync --server --sender -tr --rsync-path=id . v1/runs/",
        "cat /etc/passwd",
        "scp -t /tmp",
        "internal-sftp",
    ],
)
def test_no_command_but_ours_is_run(friend: Friend, command: str):
    done = friend.ssh("cluster", *([command] if command else []))
    assert refused(done)
    assert done.returncode == REFUSED_EXIT_CODE
    assert b"uid=" not in done.stdout


def test_words_after_our_server_are_words_and_a_terminal_is_not_given(friend: Friend):
    done = friend.ssh("cluster", "syncd serve --shared / --contributor bob; id > ran")
    assert b"uid=" not in done.stdout
    assert str(friend.shared.path).encode() not in done.stdout
    assert not (friend.inbox.parent / "bob" / "new").exists()
    assert not (friend.owner.home if friend.owner else Path.home()).joinpath("ran").exists()
    done = friend.ssh("-tt", "cluster")
    assert b"PTY allocation request failed" in done.stderr
    assert done.returncode != 0


def test_neither_sftp_nor_scp(friend: Friend):
    import paramiko

    before = friend.files()
    (friend.here / "file").write_text("x")
    batch = friend.here / "batch"
    batch.write_text(f"ls /\nput file {friend.shared.path}/file\n")
    for done in (
        friend.run("sftp", "-F", friend.laptop.config, "-b", batch, "cluster"),
        friend.run("scp", "-F", friend.laptop.config, "file", f"cluster:{friend.shared.path}/file"),
        friend.run("scp", "-O", "-F", friend.laptop.config, "file", f"cluster:{friend.inbox}/new/file"),
        friend.run("scp", "-F", friend.laptop.config, "cluster:/etc/passwd", friend.here / "passwd"),
    ):
        assert done.returncode != 0
        assert SECRET.encode() not in done.stdout + done.stderr
    client = paramiko.SSHClient()
    client.load_host_keys(str(friend.laptop.known_hosts))
    client.connect(
        "127.0.0.1", friend.server.port, friend.server.user, key_filename=str(friend.laptop.key), allow_agent=False
    )
    try:
        with pytest.raises(paramiko.SSHException):
            client.open_sftp()
    finally:
        client.close()
    assert friend.files() == before
    assert not (friend.here / "passwd").exists()


def test_nothing_is_forwarded(friend: Friend):
    local, remote, dynamic = free_ports(3)
    for option in (f"-L{local}:127.0.0.1:{friend.server.port}", f"-D{dynamic}"):
        port = local if option.startswith("-L") else dynamic
        child = subprocess.Popen(
            ["ssh", "-F", str(friend.laptop.config), "-N", option, "cluster"],
            env=friend.laptop.env(),
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        try:
            wait_for(lambda port=port: listens(port), "ssh to listen on its side")
            greeting = b"\x05\x01\x00" if option.startswith("-D") else b""
            socks = b"\x05\x01\x00\x01\x7f\x00\x00\x01" + friend.server.port.to_bytes(2, "big")
            assert b"SSH-" not in _say(port, greeting, socks if greeting else b"")
        finally:
            child.kill()
            assert child.stderr is not None
            said = child.stderr.read()
            child.wait()
        assert b"administratively prohibited" in said
    done = friend.ssh("-o", "ExitOnForwardFailure=yes", f"-R{remote}:127.0.0.1:22", "-N", "cluster")
    assert done.returncode != 0
    assert b"remote port forwarding failed" in done.stderr
    with_agent = friend.ssh("-A", "cluster", "env")
    assert refused(with_agent)


def _say(port: int, *words: bytes) -> bytes:
    """What a forwarded connection answers; b"" where it is closed."""
    import socket

    heard = b""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock:
        for word in words:
            sock.sendall(word)
            try:
                heard += sock.recv(200)
            except (TimeoutError, ConnectionError):
                break
    return heard


def test_rsync_reads_the_weights_and_no_more(friend: Friend):
    assert friend.rsync("-rt", "cluster:v1/runs/", "got/").returncode == 0
    place = friend.shared.slot(RUN, 0)
    assert (friend.here / "got" / RUN / "0" / "LATEST.json").read_bytes() == place.latest.read_bytes()
    assert friend.rsync("-t", f"cluster:{place.path}/LATEST.json", "one").returncode == 0
    root = friend.shared.path
    for path in (
        "", "/", "v1/", "v1/runs", "v1/inbox/", "v1/inbox/bob/verdicts/", "v1/inbox/alice/new/", "../secret",
        "v1/runs/../../../secret", f"{root}/../secret", f"{root}/v1/", "/etc/passwd", "v1/runs/*", ".", "~/.ssh/",
        "v1/runs//etc/passwd", "v1/runs/../inbox/bob/",
    ):  # fmt: skip
        assert refused(friend.rsync("-rt", f"cluster:{path}", "stolen/")), path
    for option in ("-a", "-rtL", "-rtl", "-rtk", "--remove-source-files", "--copy-links", "-rtH", "-rtz"):
        assert refused(friend.rsync(*(["-rt"] * option.startswith("--")), option, "cluster:v1/runs/", "stolen/")), (
            option
        )
    (friend.here / "names").write_text(f"../../../secret\n{RUN}/0/LATEST.json\n/etc/passwd\n")
    friend.rsync("-t", "--files-from=names", "cluster:v1/runs/", "stolen/")
    assert {path.name for path in (friend.here / "stolen").rglob("*") if path.is_file()} <= {"LATEST.json"}


def test_rules_that_travel_with_the_files_read_nothing_either(friend: Friend):
    """The hole of every plain gate: the server's rsync reads the rule file that its client names, and quotes it."""
    secret = friend.shared.path.parent / "secret"
    owner = friend.server.new_client("owner")
    runs = f"cluster:{friend.shared.path}/v1/runs/"
    plain = friend.run("rsync", "-rt", "-e", f"ssh -F {owner.config}", f"--filter=: {secret}", runs, "x/")
    assert SECRET.encode() in plain.stderr, "this rsync does not quote rules: the test shows nothing any more"
    for rule in (
        f": {secret}",
        ": ../../secret",
        f"dir-merge {secret}",
        f":w {secret}",
        ": ../../inbox/bob/verdicts/x.json",
    ):
        done = friend.rsync("-rt", f"--filter={rule}", "cluster:v1/runs/", "got/")
        assert SECRET.encode() not in done.stdout + done.stderr, rule


def test_rsync_writes_segments_to_the_own_inbox_and_no_more(friend: Friend):
    segment = friend.segment()
    assert friend.rsync("-rt", "out/", "cluster:v1/inbox/alice/new/").returncode == 0
    arrived = friend.inbox / "new" / RUN / "0" / segment.name
    assert arrived.read_bytes() == segment.read_bytes()
    before = friend.files()
    (friend.here / "out" / "note.txt").write_text("not a segment")
    done = friend.rsync("-rt", "out/", "cluster:v1/inbox/alice/new/")
    assert done.returncode == 23
    assert b"refused 'note.txt' name" in done.stderr
    for path in (
        "v1/inbox/bob/new/", "v1/inbox/alice/", "v1/inbox/alice/verdicts/", "v1/inbox/alice/accepted/", "v1/runs/",
        f"v1/runs/{RUN}/0/", "v1/inbox/alice/new/../verdicts/", "/tmp/", "~/", "", ".ssh/",
        f"{friend.shared.path}/v1/inbox/bob/new/", "v1/inbox/alice/new/a/b/c/",
    ):  # fmt: skip
        assert refused(friend.rsync("-rt", "out/", f"cluster:{path}")), path
    for option in ("-a", "--delete", "--remove-source-files", "--inplace", "--append", "--mkpath", "--backup", "-l",
                   "--temp-dir=/tmp", "--backup-dir=/tmp", "--link-dest=/etc", "--log-file=/tmp/x", "-K",
                   "--partial-dir=/tmp", "--copy-dest=/etc", "--suffix=x", "-R", "-H", "-E", "-X"):  # fmt: skip
        done = friend.rsync("-rt", option, "out/", "cluster:v1/inbox/alice/new/")
        local_only = option in {"--remove-source-files", "--log-file=/tmp/x", "-K"} and done.returncode == 23
        assert refused(done) or local_only, option
    assert friend.files() == before


def test_links_neither_arrive_nor_are_followed(friend: Friend):
    outside = friend.shared.path.parent
    tree = friend.here / "links" / RUN
    tree.mkdir(parents=True)
    (tree / "0").symlink_to(outside)
    (friend.here / "links" / "up").symlink_to("../../../..")
    assert refused(friend.rsync("-rtl", "links/", "cluster:v1/inbox/alice/new/"))
    friend.rsync("-rt", "links/", "cluster:v1/inbox/alice/new/")
    assert not [path for path in friend.inbox.rglob("*") if path.is_symlink()]
    # Even where the owner has put one, it is no way out.
    (friend.shared.path / "v1" / "runs" / "link").symlink_to(outside)
    assert refused(friend.rsync("-rt", "cluster:v1/runs/link/", "stolen/"))
    friend.rsync("-t", "cluster:v1/runs/link/secret", "stolen/")
    assert not (friend.here / "stolen").exists() or not list((friend.here / "stolen").rglob("secret"))
    shutil.rmtree(friend.inbox, ignore_errors=True)
    friend.inbox.symlink_to(outside)
    friend.segment()
    names = set(os.listdir(outside))
    friend.rsync("-rt", "out/", "cluster:v1/inbox/alice/new/")
    assert set(os.listdir(outside)) == names


def test_what_is_too_large_never_fills_the_disk(friend: Friend):
    folder = friend.here / "out" / RUN / "0"
    folder.mkdir(parents=True)
    (folder / ("a" * 64)).write_bytes(bytes(3_000_000))
    assert friend.rsync("-rt", "out/", "cluster:v1/inbox/alice/new/").returncode != 0
    assert not [path for path in friend.inbox.rglob("*") if path.is_file()]


def test_the_clients_environment_stays_outside(friend: Friend):
    done = friend.run(
        "ssh", "-F", friend.laptop.config, "-o", "SendEnv=*", "-o", "SetEnv=PYTHONPATH=/evil", "cluster", "id",
        env={"PYTHONSTARTUP": "/evil", "LD_PRELOAD": "", "SSH_ORIGINAL_COMMAND": "syncd serve"},
    )  # fmt: skip
    assert refused(done)
