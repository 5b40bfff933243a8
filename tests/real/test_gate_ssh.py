"""A contributor's restricted key against a real sshd: the weights and the own inbox, and nothing else."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import paramiko
import pytest
from needs import need
from policies import RUN
from refused import refused
from restricted import SECRET, Friend

from syncd.access import gate
from syncd.errors import GoneError, UnreachableError
from syncd.laptop.checkpoints import ServedCheckpoints, fetch_newest
from syncd.laptop.mirror import blob_of
from syncd.laptop.rsync import RsyncPull
from syncd.shared.inbox import Inbox
from syncd.transports import open_transport
from syncd.wire.arrivals import Offer
from syncd.wire.protocol import REFUSED_EXIT_CODE


def gate_refused(done: subprocess.CompletedProcess[bytes]) -> bool:
    """Whether the gate said no, and no secret came with it."""
    said = done.stdout + done.stderr
    return done.returncode != 0 and b"syncd gate:" in said and SECRET.encode() not in said


def test_the_weights_come_and_the_own_inbox_takes(friend: Friend):
    inbox = Inbox.of(friend.shared, "alice")
    friend.as_owner(lambda: inbox.write_verdict("a" * 64, accepted=False, reason="range", now=1.0))
    transport = open_transport(friend.remote(), client="somebody-else")
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


def test_whole_checkpoints_come_by_a_key_that_was_granted_them_and_by_no_other(friend: Friend):
    run = friend.shared.path.parent
    folder = run / "slots" / "0" / "attempts" / "1" / "checkpoints" / "20"

    def save() -> None:
        folder.mkdir(parents=True)
        (run / "run.json").write_text(json.dumps({"run_id": RUN}))
        (folder / "nets.safetensors").write_bytes(b"nets")
        files = {"nets.safetensors": {"bytes": 4, "sha256": hashlib.sha256(b"nets").hexdigest()}}
        (folder / "manifest.json").write_text(json.dumps({"files": files}))
        (run / "run.json").write_text(json.dumps({"run_id": RUN}))
        (folder.parents[3] / "checkpoints").symlink_to(run)
        (folder / "link").symlink_to(run / "secret")

    friend.as_owner(save)

    name = "slots/0/attempts/1/checkpoints/20"
    elsewhere = [f"{name}/link", "slots/0/attempts/1/secret/x", "slots/0/checkpoints/secret/x", "slots/0/secret"]

    def ask(*refused: str) -> tuple[list[str], list[str]]:
        """What came, and what was said; files that are `refused`."""
        troubles: list[str] = []
        with closing(open_transport(friend.remote(), client="alice")) as line:
            lines = fetch_newest(ServedCheckpoints(line), friend.here, trouble=troubles.append)
            for path in refused:
                with pytest.raises(GoneError):
                    line.fetch(Offer(path, 4, None, "blob"), friend.here / "part")
        return lines, troubles

    lines, troubles = ask(*elsewhere, f"{name}/nets.safetensors")
    assert (lines, len(troubles)) == ([], 1)
    assert not (friend.here / "checkpoints").exists()
    friend.allow(checkpoints=True)
    lines, troubles = ask(*elsewhere)
    assert (len(lines), troubles) == (1, [])
    assert (friend.here / "checkpoints" / RUN / "0" / "1" / "20" / "nets.safetensors").read_bytes() == b"nets"


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
        "cat /etc/passwd",
        "scp -t /tmp",
        "internal-sftp",
    ],
)
def test_no_command_but_ours_is_run(friend: Friend, command: str):
    done = friend.ssh("cluster", *([command] if command else []))
    assert gate_refused(done)
    assert done.returncode == REFUSED_EXIT_CODE
    assert b"uid=" not in done.stdout


@contextmanager
def by_paramiko(friend: Friend) -> Iterator[paramiko.SSHClient]:
    """Her login, by a client that says what was refused in exceptions: ssh's own words change with its version."""
    client = paramiko.SSHClient()
    client.load_host_keys(str(friend.laptop.known_hosts))
    client.connect(
        "127.0.0.1", friend.server.port, friend.server.user, key_filename=str(friend.laptop.key), allow_agent=False
    )
    try:
        yield client
    finally:
        client.close()


def test_nothing_is_forwarded(friend: Friend):
    with by_paramiko(friend) as client:
        transport = client.get_transport()
        assert transport is not None
        with pytest.raises(paramiko.ChannelException) as refusal:  # ssh's -L, -D and -W
            transport.open_channel("direct-tcpip", ("127.0.0.1", friend.server.port), ("127.0.0.1", 1))
        assert refusal.value.code == 1, "administratively prohibited (RFC 4254, 5.1)"
        with pytest.raises(paramiko.SSHException):
            transport.request_port_forward("127.0.0.1", 0)
    done = friend.ssh("-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:22", "-N", "cluster")
    assert done.returncode != 0
    with_agent = friend.ssh("-A", "cluster", "env")
    assert gate_refused(with_agent)


@pytest.mark.long
def test_rsync_is_refused_with_what_to_use_instead(friend: Friend):
    need("rsync", [] if shutil.which("rsync") else ["rsync"])
    friend.segment()
    before = friend.files()
    for words in (
        ("-rt", "cluster:v1/runs/", "got/"),
        ("-rt", "out/", f"cluster:{friend.inbox}/new/"),
        ("-rt", f"--filter=: {friend.shared.path.parent}/secret", "cluster:v1/runs/", "got/"),
        ("-s", "-rt", "cluster:/etc/passwd", "got/"),
    ):
        done = friend.rsync(*words)
        assert gate_refused(done)
        assert b"--rsync" in done.stderr
    with refused("server.refused-by-gate"):
        RsyncPull(friend.remote(), friend.here / "mirror").look()
    assert friend.files() == before
    assert not (friend.here / "got").exists()


@pytest.mark.long
def test_two_keys_of_one_name_are_one_contributor(friend: Friend):
    """Two laptops of one person: one inbox, one standing, and as many connections as one has."""
    other = friend.server.new_client("alices-desktop", options=None)
    friend.allow(also=other.public_key)
    remotes = [friend.remote(), friend.remote().model_copy(update={"key": other.key, "ssh_config": other.config})]
    with ExitStack() as lines:
        first, second = (lines.enter_context(closing(open_transport(one, client="x"))) for one in remotes)
        assert {line.facts().contributor for line in (first, second)} == {"alice"}
        mine, theirs = friend.segment(1), friend.segment(2)
        receipts = [*first.send([(mine, RUN, 0)]), *second.send([(theirs, RUN, 0), (mine, RUN, 0)])]
        assert all(receipt.stored for receipt in receipts)
        inbox = Inbox.of(friend.shared, "alice")
        assert {path.name for path in inbox.waiting(RUN, 0, now=1.0)} == {mine.name, theirs.name}
        friend.as_owner(lambda: inbox.write_verdict(mine.name, accepted=True, now=1.0))
        assert [len(line.listing().verdicts) for line in (first, second)] == [1, 1]
        for _ in range(gate.CONNECTIONS - 2):
            lines.enter_context(closing(open_transport(remotes[1], client="x")))
        with pytest.raises(UnreachableError):
            open_transport(remotes[0], client="x")


def test_a_groups_folder_is_the_groups_to_read_whatever_the_owners_umask(friend: Friend):
    """Of an account whose shell closes all it makes: the learner may be another member of the group."""
    for folder in (friend.shared.path, *friend.shared.path.rglob("*")):
        if folder.is_dir():
            folder.chmod(0o2750)
    shutil.rmtree(friend.inbox, ignore_errors=True)
    friend.allow(before="umask 077; ")
    with closing(open_transport(friend.remote(), client="alice")) as line:
        [receipt] = line.send([(friend.segment(), RUN, 0)])
        assert receipt.stored
    made = [friend.inbox, *friend.inbox.rglob("*")]
    assert len(made) > 4
    folders, files = (
        {path.stat().st_mode & 0o7777 for path in made if path.is_dir() is is_one} for is_one in (True, False)
    )
    assert (folders, files) == ({0o2750}, {0o640})
    assert {path.stat().st_gid for path in made} == {friend.shared.path.stat().st_gid}
