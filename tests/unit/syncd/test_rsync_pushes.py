"""What an rsync that pushed segments says of each of them."""

from __future__ import annotations

import hashlib
import re
import subprocess
from pathlib import Path

import pytest
from daemons import PATIENCE_S, wait_for

from syncd.errors import NoServerError, TooMuchError
from syncd.remote import Remote
from syncd.transports import factory, rsync
from syncd.transports.child import run_bounded
from syncd.transports.factory import open_transport
from syncd.transports.rsync import RsyncTransport
from syncd.transports.runner import BULK_TIMEOUT_S, RETRY_S, SMALL_TIMEOUT_S, Done, Runner
from syncd.wire.transport import Receipt


class AnothersFolder(Runner):
    """Stands for a shared folder of another account, where slot 1 takes nothing: rsync ends there with `code`."""

    code = 0
    said = "rsync: change_dir failed"

    def __init__(self, remote: Remote, bwlimit: int = 0) -> None:
        self.remote, self.place, self.folder = remote, "cluster", Path(remote.path)
        self.given: list[str] = []

    def run(self, words, **_):
        path = words[-1]
        self.given += [Path(word).name for word in words[1:-1] if "/incoming/" in path]
        if path.endswith("/new/"):
            return Done(words, 11, "", "rsync: mkdir failed: No such file or directory")
        if "/incoming/" not in path:
            return Done(words, 23, "", "rsync: mkdir failed: Permission denied (13)")
        return Done(words, self.code if path.endswith("/1/") else 0, "", self.said)


class SlowLine(Runner):
    """Notes how long each rsync may take, by the words that say what it moves."""

    def __init__(self, remote: Remote, bwlimit: int = 0) -> None:
        self.remote, self.place, self.folder = remote, "cluster", Path(remote.path)
        self.limits: list[tuple[str, float]] = []

    def run(self, words, *, timeout_s=SMALL_TIMEOUT_S, **_):
        self.limits.append((" ".join(words), timeout_s))
        return Done(words, 0, "", "")

    def beat(self) -> None:
        pass


def test_what_may_be_much_has_the_time_that_bulk_takes(tmp_path: Path, monkeypatch) -> None:
    """A look brings curves, and a push 32 segments: a line that is dead ends by rsync's own clock."""
    monkeypatch.setattr(rsync, "Runner", SlowLine)
    transport = RsyncTransport(Remote(path=str(tmp_path), host="cluster"), "anna")
    transport.listing()
    segment = tmp_path / hashlib.sha256(b"segment").hexdigest()
    segment.write_bytes(b"segment")
    assert transport.send([(segment, "demo", 0)]) == [Receipt(True)]
    wanted = ("LATEST.json", "metrics", "/new/")
    limits = [limit for words, limit in transport._runner.limits if any(name in words for name in wanted)]
    assert limits == [BULK_TIMEOUT_S] * 3


def test_a_stopgap_that_is_tried_brings_nothing_before_anybody_can_be_called(tmp_path: Path, monkeypatch) -> None:
    """Its first look may take long: `syncd status` would take a client for dead that connects for so long."""
    opened = factory._opened

    def without_server(remote, which, *words):
        if which == "openssh":
            raise NoServerError("cluster has no syncd")
        return opened(remote, which, *words)

    monkeypatch.setattr(factory, "_opened", without_server)
    monkeypatch.setattr(factory.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(rsync, "Runner", SlowLine)
    transport = open_transport(Remote(path=str(tmp_path), host="cluster"), client="anna")
    assert {limit for _, limit in transport._runner.limits} == {SMALL_TIMEOUT_S}


def test_whoever_waits_for_the_next_look_is_called_meanwhile(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(rsync, "Runner", SlowLine)
    transport = RsyncTransport(Remote(path=str(tmp_path), host="cluster"), "anna")
    called = []
    transport.tick = lambda: called.append(1)
    transport.wait(0.2)
    assert called


def test_an_rsync_that_brings_too_much_is_told_to_end(tmp_path: Path, monkeypatch) -> None:
    """It is two processes: killed, the other one would go on."""
    monkeypatch.setattr("syncd.transports.child.FAREWELL_S", PATIENCE_S)
    words = f"trap 'touch {tmp_path}/told; exit 1' TERM; touch {tmp_path}/begun; while :; do sleep 0.05; done"
    child = subprocess.Popen(["sh", "-c", words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for((tmp_path / "begun").exists, "its beginning")

    def check() -> None:
        raise TooMuchError("it sends too much")

    with pytest.raises(TooMuchError):
        run_bounded(child, "cluster", PATIENCE_S, check)
    assert (tmp_path / "told").exists()
    assert child.returncode == 1


@pytest.mark.parametrize("code", [3, 11, 23])
def test_a_slot_that_takes_nothing_says_nothing_of_the_others(tmp_path: Path, monkeypatch, code: int) -> None:
    monkeypatch.setattr(rsync, "Runner", AnothersFolder)
    monkeypatch.setattr(AnothersFolder, "code", code)
    segments = []
    for slot in (0, 1, 2):
        data = f"segment {slot}".encode()
        segments.append((tmp_path / hashlib.sha256(data).hexdigest(), "demo", slot))
        segments[-1][0].write_bytes(data)
    receipts = RsyncTransport(Remote(path=str(tmp_path), host="cluster"), "anna").send(segments)
    refused = Receipt(False, "no inbox", RETRY_S, "rsync: change_dir failed")
    assert receipts == [Receipt(True), refused, Receipt(True)]


def test_what_somebody_was_before_has_another_name_next_time_and_the_rest_its_own(tmp_path: Path, monkeypatch) -> None:
    """Of a segment that failed, somebody has seen the name; what has arrived must not come twice."""
    monkeypatch.setattr(rsync, "Runner", AnothersFolder)
    monkeypatch.setattr(AnothersFolder, "code", 23)
    segments = []
    for data in (b"taken", b"free"):
        segments.append(tmp_path / hashlib.sha256(data).hexdigest())
        segments[-1].write_bytes(data)
    transport = RsyncTransport(Remote(path=str(tmp_path), host="cluster"), "anna")

    def pushed() -> dict[str, str]:
        transport._runner.given.clear()
        receipts = transport.send([(segment, "demo", 1) for segment in segments])
        assert not any(receipt.stored for receipt in receipts)
        return {name.partition(".")[0]: name for name in transport._runner.given}

    first = pushed()
    taken, free = (segment.name for segment in segments)
    assert all(re.fullmatch(rf"{sha256}\.[0-9a-f]{{8}}", name) for sha256, name in first.items())
    monkeypatch.setattr(AnothersFolder, "said", f"rsync: rename {first[taken]}: Operation not permitted (1)")
    assert pushed() == first  # what is said of a push counts for the next one
    third = pushed()
    assert third[taken] != first[taken]
    assert third[free] == first[free]
