"""The simulator's model of a job that runs a failover tick, beside the real one: the same files, the same times."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from failover_model import holder, seen_since
from hypothesis import example, given, settings
from hypothesis import strategies as st
from memory_disk import MemoryPath, Server
from mutations import FAILOVER_MUTATIONS
from profiles import Profile
from world import all_seeds, simulate

from anchorleg.files import write_json
from orchestrator import failover
from orchestrator.run.rundir import RunDir
from orchestrator.shim import HEARTBEAT_S

#: Seconds until it happens, and what: the newest owner writes, an older one that woke up does, or another one comes.
STORY = st.lists(
    st.tuples(st.integers(1, 900), st.sampled_from(["it writes", "an old one writes", "start", failover.HOLDER])),
    min_size=1,
    max_size=6,
)


class Both:
    """One folder on the disk and one in memory, and one clock."""

    def __init__(self, folder: Path) -> None:
        self.now = 1000.0
        self.real = folder
        self.server = Server(lambda: self.now, lambda: 0.0)
        self.modelled = RunDir(MemoryPath("/run"))  # type: ignore[arg-type]
        (folder / "lease").mkdir()
        self.server.make_folder("login", str(self.modelled.lease))
        self.epoch = -1
        self.writes = 0

    def happen(self, what: str) -> None:
        if what in {"start", failover.HOLDER}:
            self.epoch += 1
            self._write(f"lease/{self.epoch}", {"command": what})
        epoch = max(0, self.epoch - 1) if what == "an old one writes" else self.epoch
        self.writes += 1
        self._write(f"ledger-{epoch}.json", {"beat": self.writes})

    def _write(self, name: str, value: dict[str, object]) -> None:
        write_json(self.real / name, value)
        os.utime(self.real / name, (self.now, self.now))  # real time hardly passes here, and files' times are coarse
        self.server.write("login", f"/run/{name}", str(value).replace("'", '"').encode())


@given(story=STORY, last_s=st.integers(1, 900))
@example(story=[(1, "start"), (1, "an old one writes")], last_s=30)
@settings(max_examples=40, deadline=None)
def test_a_modelled_job_has_seen_of_its_owner_what_the_real_one_has(
    story: list[tuple[int, str]], last_s: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    both = Both(tmp_path_factory.mktemp("run"))
    both.happen("start")
    claimed_at = both.now
    watch = failover.Watch(both.real, lambda: both.now)
    watch.look()
    look_at = both.now + HEARTBEAT_S
    for seconds, what in [*story, (last_s, "")]:
        until = both.now + seconds
        while look_at <= until:  # whatever happens in between
            both.now = look_at
            watch.look()
            look_at += HEARTBEAT_S
        both.now = until
        if what:
            both.happen(what)
    watch.look()
    modelled_s = both.now - max(claimed_at, seen_since(both.server, "n1", both.modelled))
    assert modelled_s - HEARTBEAT_S <= watch.silent_s() <= modelled_s
    assert holder(both.server, "n1", both.modelled) == failover._holder(both.real)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_days_in_which_only_the_jobs_look_after_the_run(seed: int) -> None:
    measured = simulate(Profile.drawn(seed, days=6.0, failover=True, host="jobs"))
    assert measured["failover_ticks"] > 10


@pytest.mark.long
@pytest.mark.parametrize("name", FAILOVER_MUTATIONS)
def test_a_broken_rule_of_failover_and_news_is_found_within_the_seeds(name: str) -> None:
    broken, fixed = FAILOVER_MUTATIONS[name]
    with broken(), pytest.raises(AssertionError, match=r"invariant (18|19|20) broken"):
        all_seeds(Profile.drawn, days=10.0, **fixed)
