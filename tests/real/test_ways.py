"""The ways that laptops really have: a jump host, a server whose policies are poisoned."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from far_side import FarSide, of_kind, until
from sshd import Laptop, Sshd

from syncd import store
from syncd.errors import UnreachableError
from syncd.laptop.mirror import blob_of
from syncd.wire.session import Session


@pytest.fixture
def far(tmp_path: Path, sshd: Sshd) -> FarSide:
    """The other side, for whichever carrier a test sets."""
    shared = store.Shared(tmp_path / "run" / "shared")
    shared.path.mkdir(parents=True)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return FarSide(shared, scratch, sshd, sshd.new_client("anna"))


@pytest.fixture
def opened() -> Iterator[Callable[[Session], Session]]:
    """Closes at the end what a test has opened."""
    found: list[Session] = []

    def keep(transport: Session) -> Session:
        found.append(transport)
        return transport

    yield keep
    for transport in found:
        transport.close()


def jump_through(jump: Sshd, laptop: Laptop) -> None:
    """Let `cluster` be reached through `jump` only, as far as this laptop's ssh config goes."""
    jump.add_key(laptop.public_key)
    with open(laptop.known_hosts, "a", encoding="utf-8") as file:
        file.write(jump.host_key_line + "\n")
    before = laptop.config.read_text()
    host = before.replace("Host cluster", "Host jump").splitlines()
    host = [f"  Port {jump.port}" if line.strip().startswith("Port ") else line for line in host]
    laptop.config.write_text(before + "  ProxyJump jump\n" + "\n".join(host) + "\n")


def test_a_jump_host_is_passed_as_the_ssh_config_says(
    far: FarSide, new_sshd: Callable[..., Sshd], opened: Callable[[Session], Session]
) -> None:
    assert far.server is not None
    assert far.laptop is not None
    jump = new_sshd()
    jump_through(jump, far.laptop)
    manifest = far.publish(1)
    alias = {"host": "cluster", "user": None, "port": None, "key": None, "known_hosts": None}
    transport = opened(far.open(**alias))
    assert of_kind(transport.listing(), "manifest")
    transport.fetch(blob_of(manifest), far.part())
    assert hashlib.sha256(far.part().read_bytes()).hexdigest() == manifest.blob.sha256
    assert all(receipt.stored for receipt in transport.send([far.segment(1)]))
    assert (jump.logins(), far.server.logins()) == (1, 1)
    jump.stop()
    with pytest.raises(UnreachableError):
        until(transport, lambda news: transport.listing() is None)
    jump.start()
    assert of_kind(opened(far.open(**alias)).listing(), "manifest")
