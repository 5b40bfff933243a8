"""How many environments described machines are given: by their size, by what is free, and by their owner's own word."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trainer.envs.memory import (
    OWNERS_BYTES,
    OWNERS_CORES,
    MemoryPlan,
    by_size,
    need_bytes,
    plan_memory,
    workers_for,
)
from trainer.machine.host import Host

GB = 2**30
#: The machines of the user guide's table, each as small and as large as it is sold, and what its row recommends.
GUIDE = {
    "MacBook Air M1, 8 GB": (range(8, 9), [8.0], range(2, 4)),
    "MacBook Pro M1, 16 GB": (range(8, 11), [16.0], range(4, 7)),
    "MacBook Pro M2, 32 GB": (range(10, 13), [32.0], range(6, 9)),
    "desktop with a GPU": (range(8, 25), [32.0, 48.0, 64.0], range(8, 17)),
}
#: Linux reports less than what is sold: the kernel and an integrated GPU keep some of it.
REPORTED = (1.0, 0.97, 0.94)
#: Most of all where something changes: small machines, and what is free when they are full.
BYTES = st.integers(0, 256 * GB) | st.integers(0, 80 * GB)
FREE = st.none() | st.integers(GB // 2, 3 * GB) | BYTES
CORES = st.integers(1, 24) | st.integers(1, 256)
HOSTS = st.builds(Host, st.just("h"), CORES, st.none() | BYTES, FREE)


def a_host(cores: int, memory_gb: float | None, free_gb: float | None = None) -> Host:
    return Host(
        "h", cores, None if memory_gb is None else int(memory_gb * GB), None if free_gb is None else int(free_gb * GB)
    )


@pytest.mark.parametrize(
    ("host", "wanted"),
    [
        pytest.param(a_host(cores, memory * share, memory * share / 2), wanted, id=f"{name}: {cores} cores, {share}")
        for name, (all_cores, memories, wanted) in GUIDE.items()
        for cores in (all_cores[0], all_cores[-1])
        for memory in memories
        for share in REPORTED
    ],
)
def test_the_guides_machines_are_given_what_its_table_says(host, wanted):
    assert plan_memory(host).num_envs in wanted


def test_the_page_says_what_the_rule_gives_these_machines():
    page = (Path(__file__).parents[3] / "docs/watching.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| [^|]+ \| (\d+)(?: to (\d+))? \| (\d+)(?: to (\d+))? GB \| (\d+)(?: to (\d+))? \|$", page, re.MULTILINE
    )
    assert len(rows) == len(GUIDE)
    for cores, most_cores, memory, most_memory, envs, most_envs in rows:
        assert by_size(a_host(int(cores), int(memory))) == int(envs)
        assert by_size(a_host(int(most_cores or cores), int(most_memory or memory))) == int(most_envs or envs)


@settings(max_examples=300)
@given(HOSTS, st.integers(0, 64), BYTES, st.just(0) | BYTES)
@example(a_host(8, 32, 1.9), 0, 32 * GB, 0)  # more environments must not leave less for workers
def test_more_of_anything_never_lowers_what_is_recommended(host, cores, memory, free):
    more = Host(
        host.name,
        host.cores + cores,
        None if host.memory_bytes is None else host.memory_bytes + memory,
        None if host.free_bytes is None else host.free_bytes + free,
    )
    before, after = plan_memory(host), plan_memory(more)
    assert after.num_envs >= before.num_envs
    assert after.workers >= before.workers


@given(HOSTS)
def test_what_is_free_now_caps_it_a_second_time_and_says_so(host):
    found, roomy = plan_memory(host), plan_memory(replace(host, free_bytes=None))
    assert not roomy.notes
    if (found.num_envs, found.workers) == (roomy.num_envs, roomy.workers):
        assert found.notes == roomy.notes
        return
    assert host.free_bytes is not None
    assert found.num_envs == 1 or need_bytes(found.num_envs, found.workers) <= host.free_bytes
    [note] = found.notes
    assert note.startswith(f"only {host.free_bytes / GB:.1f} GB of memory are free now")


@given(HOSTS, st.integers(1, 4096))
def test_a_number_of_the_users_own_always_wins(host, num_envs):
    found = plan_memory(host, num_envs)
    assert found.num_envs == num_envs
    assert found.workers <= max(1, host.cores - OWNERS_CORES)
    free, memory = host.free_bytes, host.memory_bytes
    is_short = free is not None and need_bytes(num_envs, found.workers) > free
    takes = memory is not None and need_bytes(num_envs, found.workers) > memory - OWNERS_BYTES
    assert any("needed for" in note for note in found.notes) == (is_short or takes)


@given(st.integers(1, 50), st.integers(1, 256), st.integers(0, 64), HOSTS)
def test_many_tasks_take_fewer_workers_before_they_take_memory_that_is_not_there(tasks, envs, workers, host):
    """`free_bytes` is what is left with this program loaded already."""
    found = workers_for(tasks, MemoryPlan(envs, workers), host)
    assert 0 <= found <= workers
    assert found != 1 or workers == 1
    need = need_bytes(envs, found, tasks)
    if found and host.free_bytes is not None:
        assert need - need_bytes(0, 0) <= host.free_bytes
    if found and host.memory_bytes is not None and need_bytes(envs, workers) <= host.memory_bytes - OWNERS_BYTES:
        assert need <= host.memory_bytes - OWNERS_BYTES
    if host.free_bytes is None and host.memory_bytes is None:
        assert found == workers
