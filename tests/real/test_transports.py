"""One suite for every way to the other side. What only a pushing transport can promise says so."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemons import PATIENCE_S, _pids, started_at, wait_for
from far_side import FarSide, of_kind, until
from policies import RUN
from refused import refused
from sshd import Sshd, _command

from syncd import store
from syncd.errors import GoneError, RemoteError, UnreachableError
from syncd.laptop.mirror import blob_of
from syncd.wire.arrivals import Download, Offer
from syncd.wire.session import Session

CARRIERS = ["local", "openssh", "paramiko"]
NOW = time.time()


@pytest.fixture
def far(
    request: pytest.FixtureRequest, tmp_path: Path, new_sshd: Callable[..., Sshd], monkeypatch: pytest.MonkeyPatch
) -> FarSide:
    """The other side, through the transport that the test is run for."""
    carrier = request.param
    if carrier == "paramiko":
        monkeypatch.setattr("syncd.transports.which", lambda _: None)
    shared = store.Shared(tmp_path / "shared")
    shared.path.mkdir()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    server = None if carrier == "local" else new_sshd()
    return FarSide(shared, scratch, server, None if server is None else server.new_client("anna"))


def through(*carriers: str):
    return pytest.mark.parametrize("far", carriers, indirect=True)


@pytest.fixture
def connect(far: FarSide) -> Iterator[Callable[..., Session]]:
    opened: list = []

    def open_it(**changes: object):
        opened.append(far.open(**changes))
        return opened[-1]

    yield open_it
    for transport in opened:
        transport.close()
    wait_for(lambda: not far.server_pids(), "the end of every server")


@through(*CARRIERS)
def test_what_is_there_is_listed_and_fetched_whole(far, connect):
    manifest = far.publish(1)
    far.publish(7, attempt=0)  # an older attempt's ghost counts higher, and is not the newest
    place = far.shared.slot(RUN, 0)
    store.write_metrics(place, "metrics", [{"step": 1, "loss": 0.5}])
    transport = connect()
    news = transport.listing()
    (sealed,), (curve,), blob = of_kind(news, "manifest"), of_kind(news, "metrics"), blob_of(manifest)
    assert sealed.path.endswith(f"{RUN}/0/manifests/{manifest.version.file_name}")
    for offer in (sealed, blob, curve):
        transport.fetch(offer, far.part(offer.kind))
        assert far.part(offer.kind).read_bytes() == (far.shared.path / offer.path).read_bytes()
    assert store.parse_manifest(far.part("manifest").read_bytes()) == manifest
    assert store.check_blob(far.part("blob").read_bytes(), manifest.blob)


@pytest.mark.long
@through(*CARRIERS)
def test_news_are_pushed_and_only_the_newest(far, connect):
    far.publish(1)
    transport = connect()
    transport.listing()
    before = transport.facts().logins
    for seq in range(2, 6):
        manifest = far.publish(seq, wide=400)
        until(transport, lambda news: bool(news.offers))
        transport.fetch(blob_of(manifest), far.part(str(seq)))
        assert hashlib.sha256(far.part(str(seq)).read_bytes()).hexdigest() == manifest.blob.sha256
    for seq in range(6, 30):
        newest = far.publish(seq)
    until(transport, lambda news: any(offer.path.endswith(newest.version.file_name) for offer in news.offers))
    store.write_metrics(far.shared.slot(RUN, 0), "evaluations", [{"step": 3}])
    until(transport, lambda news: bool(of_kind(news, "metrics")))
    assert transport.wait(0.6).offers == ()
    assert transport.facts().logins == before == (0 if far.server is None else far.server.logins())


@through(*CARRIERS)
@pytest.mark.parametrize("size", ["small", "large"])
def test_a_part_is_gone_on_with(far, connect, size):
    manifest = far.publish(1, wide=400 if size == "small" else 100_000)
    transport = connect()
    blob = blob_of(manifest)
    content = (far.shared.path / blob.path).read_bytes()
    assert len(content) == manifest.blob.bytes
    assert size == "small" or len(content) > 5_000_000
    rest = 700
    far.part().write_bytes(content[:-rest])
    read = transport.facts().bytes_in
    transport.fetch(blob, far.part())
    assert far.part().read_bytes() == content
    if isinstance(transport, Session):
        assert transport.facts().bytes_in - read < rest + 500
    far.part().write_bytes(content + b"too much")
    transport.fetch(blob, far.part())
    assert far.part().read_bytes() == content


@through(*CARRIERS)
def test_what_is_gone_or_elsewhere_harms_nothing_else(far, connect):
    blob = blob_of(far.publish(1))
    secret = far.shared.path / "v1" / "inbox" / "secret"
    secret.parent.mkdir()
    secret.write_text("not for you")
    slot = far.shared.slot(RUN, 0).path
    (slot / "metrics").mkdir()
    (slot / "metrics" / "m-000000.jsonl").symlink_to(secret)
    transport = connect()
    away = (
        "v1/inbox/secret",
        f"v1/runs/{RUN}/0/blobs/aa/{'a' * 64}",
        f"v1/runs/{RUN}/0/metrics/m-000000.jsonl",
        f"v1/runs/{RUN}/0/metrics",
    )
    for path in away:
        with pytest.raises(RemoteError):
            transport.fetch(Offer(path, 11, "a" * 64, "blob"), far.part("away"))
        assert not far.part("away").exists() or far.part("away").read_bytes() == b""
    transport.fetch(blob, far.part())
    assert far.part().stat().st_size == blob.bytes


@through(*CARRIERS)
def test_segments_are_stored_once_and_refused_with_a_reason(far, connect):
    far.publish(1)
    transport = connect()
    segments = [far.segment(seed) for seed in range(40)]
    assert all(receipt.stored for receipt in transport.send(segments))
    assert all(receipt.stored for receipt in transport.send(segments[:3]))
    inbox = store.Inbox.of(far.shared, "anna")
    wait_for(lambda: len(inbox.waiting(RUN, 0, now=NOW)) == 40, "the segments in the inbox")
    for path, _, _ in segments:
        assert (inbox.place("new", RUN, 0) / path.name).read_bytes() == path.read_bytes()


@through(*CARRIERS)
def test_the_inbox_says_why_it_refuses(far, connect):
    far.publish(1)
    transport = connect()
    path, _, _ = far.segment(1)
    foreign = far.segment(2)
    renamed = far.scratch / ("0" * 64)
    renamed.write_bytes(b"not what its name says")
    large = far.segment(3, size=2_000_000)
    stored, other, damaged, size = transport.send(
        [(path, RUN, 0), (foreign[0], "nobody-0", 0), (renamed, RUN, 0), large]
    )
    assert stored.stored
    assert [(one.stored, one.reason) for one in (other, damaged, size)] == [
        (False, "other_run"), (False, "damaged"), (False, "size"),
    ]  # fmt: skip
    store.Inbox.of(far.shared, "anna").drop(by="the owner", now=NOW)
    (dropped,) = transport.send([far.segment(4)])
    assert (dropped.stored, dropped.reason, dropped.retry_after_s) == (False, "dropped", None)


@through(*CARRIERS)
def test_a_folder_or_a_program_that_is_not_there_is_said(far):
    with refused("serve.no-folder"):
        far.open(path=str(far.shared.path / "nowhere"))
    if far.server is not None:
        with refused("server.no-syncd"):
            far.open(command="/nowhere/syncd")
    wait_for(lambda: not far.server_pids(), "the end of every server")


@pytest.mark.long
@through(*CARRIERS)
def test_a_server_killed_in_the_middle_leaves_a_part_that_is_gone_on_with(far, connect, monkeypatch):
    blob = blob_of(far.publish(1, wide=400_000))  # 22 MB: more than what pipes and windows hold
    transport = connect()
    failures: list[BaseException] = []
    killed = threading.Event()
    append = Download.append

    def append_and_wait(download: Download, offset: int, payload: bytes) -> None:
        append(download, offset, payload)
        killed.wait(PATIENCE_S)

    monkeypatch.setattr(Download, "append", append_and_wait)

    def fetch() -> None:
        try:
            transport.fetch(blob, far.part())
        except UnreachableError as error:
            failures.append(error)

    fetching = threading.Thread(target=fetch)
    fetching.start()
    wait_for(lambda: far.part().exists() and far.part().stat().st_size > 0, "the first bytes")
    for pid in far.server_pids():
        os.kill(pid, signal.SIGKILL)
    killed.set()
    fetching.join(PATIENCE_S)
    assert not fetching.is_alive()
    assert failures
    arrived = far.part().stat().st_size
    assert 0 < arrived < blob.bytes
    with pytest.raises(UnreachableError):
        transport.wait(1)
    again = connect()
    again.fetch(blob, far.part())
    assert hashlib.sha256(far.part().read_bytes()).hexdigest() == blob.sha256
    assert again.facts().bytes_in < blob.bytes - arrived + 50_000


#: A laptop's program, in a process of its own: connects, says so, and waits for news for ever.
CLIENT_PROGRAM = """
import sys
from syncd.remote import Remote
from syncd.transports import open_transport
transport = open_transport(Remote.model_validate_json(sys.argv[1]), client="anna")
transport.listing()
print("listening", flush=True)
while True:
    transport.wait(60)
"""


@through(*CARRIERS)
def test_nothing_is_left_of_a_client_that_was_killed(far):
    command = [sys.executable, "-c", CLIENT_PROGRAM, far.remote().model_dump_json()]
    client = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == b"listening\n"
        pids = far.server_pids() + [pid for pid in _pids() if str(far.shared.path) in _command(pid)]
        assert len(set(pids)) >= 2
    finally:
        client.kill()
        client.communicate(timeout=PATIENCE_S)
    wait_for(lambda: not any(map(started_at, pids)), "the end of the server and of ssh")


@through(*CARRIERS)
def test_a_file_that_changed_since_it_was_offered_is_not_passed_off(far, connect):
    far.publish(1)
    place = far.shared.slot(RUN, 0)
    store.write_metrics(place, "metrics", [{"step": 1}])
    transport = connect()
    (offer,) = of_kind(transport.listing(), "metrics")
    store.write_metrics(place, "metrics", [{"step": 2}])
    with pytest.raises(GoneError):
        transport.fetch(offer, far.part())
    (newer,) = of_kind(until(transport, lambda news: bool(of_kind(news, "metrics"))), "metrics")
    transport.fetch(newer, far.part())
    assert far.part().read_bytes() == b'{"step":2}\n'
