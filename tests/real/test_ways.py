"""The ways that laptops really have: a jump host, a server whose policies are poisoned."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemons import wait_for
from far_side import FarSide, of_kind, until
from policies import RUN, publish_one
from refused import refused
from sshd import Laptop, Sshd
from watching import client_env, seen, watching

from syncd import store
from syncd.access.settings import Settings, store_settings
from syncd.errors import UnreachableError
from syncd.laptop.mirror import blob_of
from syncd.store import Version
from syncd.wire.session import Session

WAYS = ["openssh", "paramiko"]


@pytest.fixture
def far(tmp_path: Path, sshd: Sshd) -> FarSide:
    """The other side, for whichever carrier a test sets."""
    shared = store.Shared(tmp_path / "run" / "shared")
    shared.path.mkdir(parents=True)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return FarSide("openssh", shared, scratch, sshd, sshd.new_client("anna"))


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


@pytest.mark.parametrize("way", WAYS)
def test_a_jump_host_is_passed_as_the_ssh_config_says(
    far: FarSide, new_sshd: Callable[..., Sshd], opened: Callable[[Session], Session], way: str
) -> None:
    assert far.server is not None
    assert far.laptop is not None
    jump = new_sshd()
    jump_through(jump, far.laptop)
    far.carrier = way
    manifest = far.publish(1)
    alias = {"host": "cluster", "user": None, "port": None, "key": None, "known_hosts": None}
    if way == "paramiko":
        with refused("paramiko.proxy", option="proxyjump"):
            far.open(**alias)
        assert (jump.logins(), far.server.logins()) == (0, 0)
        return
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


def smuggle(shared: store.Shared, aside: store.Shared) -> None:
    """Publish what lies `aside` as it is: the blob, its manifest, the hint."""
    files = [path for path in aside.slot(RUN, 0).path.rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: ["blobs" in path.parts, "manifests" in path.parts], reverse=True):
        target = shared.path / path.relative_to(aside.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target.with_name(".smuggled"))
        os.replace(target.with_name(".smuggled"), target)


@pytest.mark.parametrize("way", WAYS)
def test_a_poisoned_policy_is_left_out_and_said_and_the_next_one_is_taken(
    far: FarSide, tmp_path: Path, way: str
) -> None:
    assert far.laptop is not None
    folder = tmp_path / "mirror"
    far.publish(1)
    env = client_env(far.laptop.home)
    store_settings(Settings(remote=far.remote(), name="anna"), env)

    def has(seq: int) -> bool:
        manifest = seen(folder, RUN)
        return manifest is not None and manifest.version == Version(1, seq)

    with watching(folder, "--transport", way, "", env=env) as watcher:
        watcher.live()
        wait_for(lambda: has(1), "the first policy")
        aside = store.Shared(tmp_path / "aside")
        blob = aside.slot(RUN, 0).blob(publish_one(aside, 1, 2).blob.sha256)
        content = bytearray(blob.read_bytes())
        content[-1] ^= 1
        blob.chmod(0o644)
        blob.write_bytes(content)
        smuggle(far.shared, aside)
        wait_for(lambda: any("1-2 is left out" in trouble for trouble in watcher.word().troubles), "it to be said")  # type: ignore[union-attr]
        assert has(1)
        far.publish(3)
        wait_for(lambda: has(3), "the next policy")
        assert watcher.is_live()
