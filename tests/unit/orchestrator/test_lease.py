from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import NOW, RUN_ID
from refused import refused
from refusing_disk import RefusingDisk

from anchorleg.files import create_exclusive, to_json
from orchestrator import processes
from orchestrator.decisions.models import Ledger
from orchestrator.disk import Disk
from orchestrator.processes import ProcessId, myself, start_time
from orchestrator.run import lease as lease_module
from orchestrator.run.lease import (
    LATE_S,
    TTL_S,
    Lease,
    Owner,
    living_owner,
    unseen_ledger,
    wait_for_word,
)
from orchestrator.run.ledger import save_ledger
from orchestrator.run.rundir import RunDir


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    (tmp_path / "lease").mkdir()
    return RunDir(tmp_path)


def own(run_dir: RunDir, process: ProcessId, epoch: int = 0) -> Owner:
    """An epoch in somebody else's name."""
    owner = Owner(epoch=epoch, process=process, since=NOW, command="start")
    assert create_exclusive(run_dir.lease / str(epoch), to_json(owner.model_dump(mode="json")))
    return owner


def somebody_elsewhere() -> ProcessId:
    return replace(myself(), host="another-login-node", boot_id="another-boot")


class StaleDisk(Disk):
    """A network folder whose server was just restarted."""

    def read(self, path: Path) -> bytes:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))


class LateDisk(Disk):
    """A network folder on another machine: what is `hidden` there is not seen here yet, or as it was before."""

    def __init__(self) -> None:
        self.hidden: dict[Path, bytes | None] = {}

    def hide(self, path: Path, older: bytes | None = None) -> None:
        self.hidden[path] = older

    def read(self, path: Path) -> bytes:
        if path in self.hidden:
            older = self.hidden[path]
            if older is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            return older
        return super().read(path)


class TestWaitingForWord:
    """A machine that was taken away says nothing; one that lives beats."""

    @staticmethod
    def clock() -> tuple[Callable[[], float], Callable[[float], None], list[float]]:
        now = [1000.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds

        return lambda: now[0], sleep, now

    def test_who_beats_lives(self, run_dir: RunDir) -> None:
        owner = own(run_dir, somebody_elsewhere())
        ledger = save_ledger(run_dir, Ledger(run_id=RUN_ID, epoch=0), NOW)
        monotonic, tick, now = self.clock()

        def sleep(seconds: float) -> None:
            tick(seconds)
            if now[0] > 1030.0:
                save_ledger(run_dir, ledger, NOW)

        assert wait_for_word(run_dir, owner, monotonic=monotonic, sleep=sleep)
        assert now[0] < 1040.0

    def test_who_is_silent_is_gone_when_its_lease_has_run_out(self, run_dir: RunDir) -> None:
        owner = own(run_dir, somebody_elsewhere())
        save_ledger(run_dir, Ledger(run_id=RUN_ID, epoch=0), NOW)
        monotonic, sleep, now = self.clock()
        assert not wait_for_word(run_dir, owner, monotonic=monotonic, sleep=sleep)
        assert TTL_S < now[0] - 1000.0 < TTL_S + 5.0


class TestLateFiles:
    """The release of an owner is seen, and the ledger that it wrote before is not."""

    @pytest.fixture
    def disk(self) -> LateDisk:
        return LateDisk()

    @pytest.fixture
    def here(self, run_dir: RunDir, disk: LateDisk) -> RunDir:
        return RunDir(run_dir.path, disk)

    @staticmethod
    def owned(run_dir: RunDir, beats: int) -> bytes:
        """An owner elsewhere that wrote so many beats, and left. Its ledger before the last one."""
        lease = Lease.take(run_dir, "tick --failover", now=NOW)
        ledger, before = Ledger(run_id=RUN_ID, epoch=lease.epoch), b""
        for _ in range(beats):
            before = run_dir.ledger(lease.epoch).read_bytes() if ledger.beat else b""
            ledger = save_ledger(run_dir, ledger, NOW)
        lease.release()
        return before

    @pytest.mark.parametrize("how", ["none", "an older one"])
    def test_a_successor_waits_until_it_sees_it(self, run_dir: RunDir, here: RunDir, disk: LateDisk, how: str) -> None:
        before = self.owned(run_dir, 3)
        disk.hide(run_dir.ledger(0), None if how == "none" else before)
        with refused("controller.ledger-unseen", ledger="ledger-0.json"):
            Lease.take(here, "tick --failover", now=NOW)
        disk.hidden.clear()
        assert Lease.take(here, "tick --failover", now=NOW).epoch == 1

    def test_what_was_taken_away_is_not_waited_for_for_ever(self, run_dir: RunDir, here: RunDir) -> None:
        self.owned(run_dir, 2)
        run_dir.ledger(0).unlink()
        now = [1_000.0]
        for passed_s, is_held in ((0.0, True), (LATE_S, True), (LATE_S + 1.0, False)):
            now[0] = 1_000.0 + passed_s
            assert (unseen_ledger(here, 0, monotonic=lambda: now[0]) == 0) is is_held


class TestAFolderThatRefusesForAMoment:
    """Whoever is to own a run looks again: nobody may come after it."""

    @pytest.mark.parametrize("of", ["ledger-0.json", f"{processes.boot_id()}.json"], ids=["ledger", "memory"])
    def test_a_dead_owner_does_not_live_again(self, run_dir: RunDir, of: str) -> None:
        own(run_dir, somebody_elsewhere())
        save_ledger(run_dir, Ledger(run_id=RUN_ID, epoch=0), NOW)
        assert living_owner(run_dir, monotonic=lambda: 1000.0) is not None
        memory = {path.name: path.read_bytes() for path in run_dir.lease.glob("seen-*")}
        assert len(memory) == 1
        disk, pauses = RefusingDisk("read", of, 1), list[float]()
        here, dead = RunDir(run_dir.path, disk), 1000.0 + TTL_S + 1.0
        lease = Lease.take(here, "tick --failover", now=NOW, monotonic=lambda: dead, sleep=pauses.append)
        assert (lease.epoch, disk.left, len(pauses)) == (1, 0, 1)
        assert {name: (run_dir.lease / name).read_bytes() for name in memory} == memory


class TestTaking:
    def test_the_second_taker_is_told_who_has_it_where_and_since_when(self, run_dir: RunDir) -> None:
        Lease.take(run_dir, "start", now=NOW)
        since, me = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(NOW)), myself()
        with refused("controller.lives", owner=re.compile(rf"{me.pid} on {me.host}.*{since}")):
            Lease.take(run_dir, "tick", now=NOW + 1)

    def test_a_dead_owner_of_this_machine_is_replaced_at_once(self, run_dir: RunDir) -> None:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        started = start_time(child.pid)
        assert started is not None
        own(run_dir, replace(myself(), pid=child.pid, started=started))
        assert living_owner(run_dir) is not None
        child.communicate(b"\n")
        assert Lease.take(run_dir, "start", now=NOW).epoch == 1

    def test_a_process_may_be_called_anything(self) -> None:
        own = "import os\nif os.path.exists('/proc'): open('/proc/self/comm', 'wb').write(b'l\\xfc) R ((')\n"
        child = subprocess.Popen(
            [sys.executable, "-c", f"{own}print(flush=True)\ninput()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
        started = start_time(child.pid)
        child.communicate(b"\n")
        assert (started is None, start_time(child.pid)) == (False, None)

    @pytest.mark.parametrize("change", [{"started": "1"}, {"boot_id": "the boot before"}])
    def test_a_pid_that_was_reused_is_not_the_owner(self, run_dir: RunDir, change: dict[str, Any]) -> None:
        own(run_dir, replace(myself(), **change))
        assert Lease.take(run_dir, "start", now=NOW).epoch == 1

    def test_of_two_takers_of_a_free_epoch_one_wins(self, run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
        def both_saw_it_free(epoch: int) -> int:
            if not (run_dir.lease / "0").exists():
                own(run_dir, somebody_elsewhere())
            return epoch

        monkeypatch.setattr(lease_module, "highest_epoch", lambda _: both_saw_it_free(-1))
        with refused("controller.was-faster"):
            Lease.take(run_dir, "start", now=NOW)


def test_who_passed_by_and_died_on_another_machine_is_waited_for_until_that_is_known(run_dir: RunDir) -> None:
    now = [1000.0]

    def sleep(seconds: float) -> None:
        now[0] += 10 * seconds

    owner = Owner(epoch=0, process=somebody_elsewhere(), since=NOW, command="tick --failover")
    assert create_exclusive(run_dir.lease / "0", to_json(owner.model_dump(mode="json")))
    lease = Lease.take_patiently(run_dir, "start", monotonic=lambda: now[0], sleep=sleep)
    assert lease.epoch == 1
    assert now[0] - 1000.0 > TTL_S


class TestAnOwnerElsewhere:
    @pytest.fixture
    def clock(self) -> list[float]:
        return [1000.0]

    @staticmethod
    def beat(run_dir: RunDir, beat: int) -> None:
        save_ledger(run_dir, Ledger(run_id=RUN_ID, epoch=0, beat=beat), NOW)

    def test_it_lives_until_its_beat_was_the_same_for_longer_than_the_ttl(
        self, run_dir: RunDir, clock: list[float]
    ) -> None:
        own(run_dir, somebody_elsewhere())
        self.beat(run_dir, 1)
        assert living_owner(run_dir, monotonic=lambda: clock[0]) is not None
        clock[0] += TTL_S
        assert living_owner(run_dir, monotonic=lambda: clock[0]) is not None
        clock[0] += 1
        assert living_owner(run_dir, monotonic=lambda: clock[0]) is None

    def test_every_beat_starts_the_count_again(self, run_dir: RunDir, clock: list[float]) -> None:
        own(run_dir, somebody_elsewhere())
        for beat in range(4):
            self.beat(run_dir, beat)
            assert living_owner(run_dir, monotonic=lambda: clock[0]) is not None
            clock[0] += TTL_S - 1
            assert living_owner(run_dir, monotonic=lambda: clock[0]) is not None

    def test_a_reading_from_a_later_clock_than_ours_counts_from_now(self, run_dir: RunDir, clock: list[float]) -> None:
        own(run_dir, somebody_elsewhere())
        assert living_owner(run_dir, monotonic=lambda: clock[0] + 1e6) is not None
        clock[0] += TTL_S + 1
        assert living_owner(run_dir, monotonic=lambda: clock[0]) is not None


class TestAStaleOwner:
    def test_an_owner_that_was_replaced_learns_by_whom(self, run_dir: RunDir) -> None:
        stale = Lease.take(run_dir, "start", now=NOW)
        own(run_dir, somebody_elsewhere(), epoch=1)
        with refused("lease.taken", owner=re.compile("another-login-node")):
            stale.check()

    def test_a_folder_that_fails_for_a_moment_is_not_taken_for_a_removed_one(self, tmp_path: Path) -> None:
        run_dir = RunDir(tmp_path, StaleDisk())
        run_dir.lease.mkdir()
        lease = Lease.take(run_dir, "start", now=NOW)
        with pytest.raises(OSError, match="Stale"):
            lease.check()

    @pytest.mark.parametrize(("command", "passes"), [("tick --failover", True), ("tick", True), ("start", False)])
    def test_it_knows_whether_who_replaced_it_only_passed_by(
        self, run_dir: RunDir, command: str, *, passes: bool
    ) -> None:
        stale = Lease.take(run_dir, "start", now=NOW)
        assert stale.passed_by() is None
        newer = Owner(epoch=1, process=somebody_elsewhere(), since=NOW, command=command)
        assert create_exclusive(run_dir.lease / "1", to_json(newer.model_dump(mode="json")))
        assert (stale.passed_by() == newer) is passes

    def test_its_late_release_leaves_a_folder_alone_that_was_made_anew(self, run_dir: RunDir) -> None:
        stale = Lease.take(run_dir, "start", now=NOW)
        shutil.rmtree(run_dir.lease)
        run_dir.lease.mkdir()
        anew = own(run_dir, somebody_elsewhere())
        stale.release()
        assert living_owner(run_dir) == anew


def test_a_process_that_we_may_not_see_is_not_taken_for_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def not_permitted(_pid: int, _number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(processes, "start_time", lambda _pid: None)
    monkeypatch.setattr(os, "kill", not_permitted)
    assert processes.is_alive(myself()) is None
