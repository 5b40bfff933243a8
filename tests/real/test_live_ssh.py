"""Agents at play from a shared folder into a laptop's mirror, through every way; kills, frozen clients, strangers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from daemons import wait_for
from far_side import FarSide
from live_rings import SCENE, SCENE_SUM, facts, newest_in, pose, ring_of, slot_of, wish_in, write_ring
from policies import RUN, publish_one
from restricted import Friend
from sshd import Sshd
from watching import settled, watching

from anchorleg.live.batches import FACTS, POSE
from anchorleg.live.ring import RingWriter
from anchorleg.live.wanted import FILE, Wish, read
from syncd.laptop.liveagents import LiveAgents
from syncd.laptop.mirror import Mirror
from syncd.store import Shared
from syncd.transports import open_transport
from syncd.wire.live import GUESTS_FPS, GUESTS_WISHES
from syncd.wire.liveline import grown
from syncd.wire.protocol import WatchLive, WireWish
from syncd.wire.session import Session

PUSHING = ["local", "openssh"]
#: What a server may have more after some megabytes of batches that nobody takes.
MEMORY_KIB = 4096


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    shared = Shared(tmp_path / "shared")
    publish_one(shared, 1, 1)
    return shared


@pytest.fixture
def open_far(tmp_path: Path, shared: Shared, new_sshd: Callable[..., Sshd]) -> Callable[[str], FarSide]:
    """The other side, through a transport."""

    def open_it(carrier: str) -> FarSide:
        (tmp_path / "scratch").mkdir()
        server = None if carrier == "local" else new_sshd()
        laptop = None if server is None else server.new_client("anna")
        return FarSide(shared, tmp_path / "scratch", server, laptop)

    return open_it


class Laptop:
    """A mirror in which somebody looks at slot 0, over an open connection."""

    def __init__(self, folder: Path, transport: Session) -> None:
        self.folder, self.transport = folder, transport
        self.told: list[str] = []
        self.viewer = wish_in(folder, RUN)
        self.agents = LiveAgents(transport, Mirror(folder), say=self.told.append)

    def until(self, condition: Callable[[], object], what: str) -> None:
        def look() -> object:
            self.viewer.renew((Wish(0, "any", 30),))
            self.transport.wait(0.05)
            self.agents.turn()
            return condition()

        wait_for(look, what)


@pytest.mark.parametrize("carrier", PUSHING)
def test_a_ring_and_its_scene_arrive_in_the_mirror(open_far, tmp_path, shared, carrier):
    (slot_of(shared.path, RUN) / "live").mkdir()
    (slot_of(shared.path, RUN) / "live" / f"{SCENE_SUM}.scene").write_bytes(SCENE)
    far = open_far(carrier)
    transport = far.open()
    try:
        laptop = Laptop(tmp_path / "mirror", transport)
        transport.listing()
        laptop.until(lambda: read(slot_of(shared.path, RUN).parent / FILE), "the wish")
        writer = RingWriter(ring_of(shared.path, RUN))
        for step in range(3):
            writer.write(POSE, pose(step))
            laptop.until(lambda step=step: newest_in(laptop.folder, RUN) == pose(step), "the batch")
        scene = slot_of(laptop.folder, RUN) / "live" / f"{SCENE_SUM}.scene"
        laptop.until(scene.exists, "the scene")
        assert scene.read_bytes() == SCENE
        assert laptop.told == []
        assert read(slot_of(shared.path, RUN).parent / FILE)
    finally:
        transport.close()
    wait_for(lambda: not read(slot_of(shared.path, RUN).parent / FILE), "the wish's end")
    wait_for(lambda: not far.server_pids(), "the end of every server")


def is_shown(folder: Path, payload: bytes) -> Callable[[], bool]:
    """Whether it lies in the mirror; asked with a viewer there that renews its wish."""
    viewer = wish_in(folder, RUN)

    def look() -> bool:
        viewer.renew((Wish(0, "any", 30),))
        return newest_in(folder, RUN) == payload

    return look


def servers_of(sshd: Sshd) -> list[int]:
    """The servers themselves, without the shells that started them."""
    exe = {pid: os.readlink(f"/proc/{pid}/exe") for pid in sshd.processes("syncd", "serve")}
    return [pid for pid, path in exe.items() if "python" in Path(path).name]


def resident_kib(pid: int) -> int:
    """0: it has ended, because its client was silent."""
    try:
        said = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    for line in said.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


@pytest.mark.long
def test_a_frozen_client_takes_no_memory_and_delays_nobody(sshd: Sshd, shared: Shared, tmp_path: Path) -> None:
    first, second = tmp_path / "frozen", tmp_path / "other"
    with watching(first, "", env=settled(sshd.new_client("anna"), sshd, shared.path)) as frozen:
        frozen.live()
        [served] = servers_of(sshd)
        writer = RingWriter(ring_of(shared.path, RUN))
        writer.write(POSE, pose(0, bodies=3_000))
        wait_for(is_shown(first, pose(0, bodies=3_000)), "the first batch")
        with watching(second, "", env=settled(sshd.new_client("ben"), sshd, shared.path)) as other:
            other.live()
            before, grew = resident_kib(served), 0
            os.kill(frozen.pid, signal.SIGSTOP)
            try:
                for step in range(1, 12):
                    writer.write(POSE, pose(step, bodies=3_000))
                    wait_for(is_shown(second, pose(step, bodies=3_000)), "the batch at the other one")
                    grew = max(grew, resident_kib(served) - before)
            finally:
                os.kill(frozen.pid, signal.SIGCONT)
            assert grew < MEMORY_KIB
        wait_for(is_shown(first, pose(11, bodies=3_000)), "the newest batch at the one that woke")


def test_a_restricted_key_may_watch_a_little(friend: Friend, tmp_path: Path) -> None:
    """It sees the runs whose weights it sees. What it wants is bounded, and comes after what the owner wants."""
    run = slot_of(friend.shared.path, RUN).parent
    before = friend.files()
    transport = open_transport(friend.remote(), client="somebody-else")
    try:
        wishes = tuple(WireWish(run_id=RUN, slot=slot, lane="any", fps=60) for slot in range(4))
        transport.say(WatchLive(wishes=wishes))
        wait_for(lambda: read(run / FILE), "the wish")
        (watcher,) = read(run / FILE).values()
        assert [(wish.slot, wish.fps) for wish in watcher.wishes] == [(0, GUESTS_FPS), (1, GUESTS_FPS)][:GUESTS_WISHES]
        assert next(iter(read(run / FILE))).startswith("f")
        friend.as_owner(lambda: write_ring(friend.shared.path, RUN, facts(a=1), kind=FACTS))
        found: list[bytes] = []

        def look() -> bool:
            transport.wait(0.05)
            found.extend(grown(frame.payload) for frame in transport.take_live() if frame.payload)
            return bool(found)

        wait_for(look, "the batch")
        assert found == [facts(a=1)]
    finally:
        transport.close()
    wait_for(lambda: not read(run / FILE), "the wish's end")
    after = friend.files()
    new = {name for name in after if after[name] != before.get(name)}
    assert {name for name in new if "/live" not in name} == set()
