"""From jobs on a real Slurm over a real sshd to a laptop's page: the agents move, whatever dies on the way."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from browser import Pages, a_viewer
from daemons import wait_for
from laptops import Machine, a_training
from relay import NewRelay, Relay
from slurm_cluster import SlurmCluster

from anchorleg.live import wanted
from anchorleg.live.batches import checked
from anchorleg.live.ring import RingReader
from syncd import store

pytestmark = [pytest.mark.slurm, pytest.mark.trainer, pytest.mark.long]

#: A picture of 67,000 triangles, drawn without a GPU.
SMALL = ("--width", "160", "--height", "120")


def canvas(page: Any, slot: int) -> Any:
    return page.locator(f'[data-agent="{slot}"] canvas').first


def wait_for_moves(page: Any, slot: int) -> None:
    """Until the tile says that it is in training, and its picture has changed twice."""
    page.locator(f'[data-agent="{slot}"]').get_by_text(f"in training · slot {slot}").wait_for()
    seen: set[bytes] = set()

    def has_moved() -> bool:
        seen.add(canvas(page, slot).screenshot())
        return len(seen) > 2

    wait_for(has_moved, f"the agent of slot {slot} to move")


def newest_batch(folder: Path, run_id: str, slot: int) -> dict[str, Any]:
    """What the ring of that folder says last; {} where there is none."""
    cells = RingReader(folder / "v1" / "runs" / run_id / str(slot) / "live" / "any.ring").newer()
    return checked(cells[-1].kind, cells[-1].payload)[0] if cells else {}


def is_asked(folder: Path, run_id: str) -> bool:
    """Whether anybody is noted who wants to see an agent."""
    return bool(wanted.wishes_of(wanted.read(folder / "v1" / "runs" / run_id / wanted.FILE).values()))


def run_id_of(relay: Relay) -> str:
    return str(relay.ledger()["run_id"])


def test_agents_of_a_cluster_move_on_a_laptops_page(
    pages: Pages, new_relay: NewRelay, slurm: SlurmCluster, new_machine: Callable[..., Machine], tmp_path: Path
) -> None:
    relay = a_training(new_relay, slurm, slots=2)
    relay.spawn("start")
    shared = relay.run_dir / "shared"
    machine = new_machine("anna", shared)
    relay.wait_for(lambda: len(store.Shared(shared).slots()) == 2, "both slots to publish")
    daemon = machine.start("watch", "syncd", "watch")
    wait_for(lambda: len(store.Shared(machine.folder).slots()) == 2, "both in the mirror")
    run_id = run_id_of(relay)
    assert not is_asked(shared, run_id), "nobody looks"

    with a_viewer(tmp_path, str(machine.folder), *SMALL) as url:
        page = pages.open(url)
        for slot in (0, 1):
            wait_for_moves(page, slot)
        assert newest_batch(machine.folder, run_id, 0)["attempt"] == 0

        relay.hand_over(0)
        wait_for(lambda: newest_batch(machine.folder, run_id, 0).get("attempt") == 1, "the next job's agent here")
        wait_for_moves(page, 0)

        (serve, *_) = machine.server.processes("syncd", "serve")
        os.kill(serve, signal.SIGKILL)
        wait_for(lambda: serve not in machine.server.processes("syncd", "serve"), "its death")
        wait_for(lambda: machine.server.processes("syncd", "serve"), "another connection")
        wait_for_moves(page, 1)

        os.kill(daemon.pid, signal.SIGSTOP)
        wait_for(lambda: not is_asked(shared, run_id), "nobody to ask any more")
        os.kill(daemon.pid, signal.SIGCONT)
        wait_for_moves(page, 0)

        assert relay.run("stop").code == 0
        page.locator('[data-agent="0"]').get_by_text("delayed").wait_for()
        page.close()
    wait_for(lambda: not is_asked(shared, run_id), "the wish to be withdrawn")
    assert daemon.poll() is None, machine.said("watch")
