from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from trainer.commands.actors import check_room
from trainer.envs.memory import MOST_ENVS, OWNERS_BYTES, MemoryPlan, by_size, need_bytes, plan_memory
from trainer.machine.host import Host, cpu_quota, mac_free, memory_limit, memory_of
from trainer.tuning import autotune
from trainer.tuning.autotune import (
    NEAR,
    MachineRates,
    Stepping,
    cache_file,
    choices,
    find_profile,
    is_of,
    read_facts,
    recommend,
)
from trainer.tuning.autotune import write_facts as write

GB = 2**30
LAPTOP = Host("laptop", 8, 16 * GB, 11 * GB)


def facts(*stepping: Stepping, host: Host = LAPTOP) -> MachineRates:
    return MachineRates(host, stepping, autotune.versions_here(), 1_760_086_400.0)


RATES = st.floats(10, 1e5)
CHOICES = st.lists(st.builds(Stepping, st.integers(1, MOST_ENVS), st.integers(0, 64), RATES), max_size=12).map(tuple)
BYTES = st.none() | st.integers(0, 64 * GB)
HOSTS = st.builds(Host, st.just("h"), st.integers(1, 128), BYTES, BYTES)


@given(CHOICES, HOSTS)
def test_rates_raise_the_number_but_never_lower_it_and_never_beyond_sixteen(stepping, machine):
    best = recommend(facts(*stepping, host=machine))
    assert plan_memory(machine).num_envs <= best.num_envs <= MOST_ENVS
    assert best.workers <= max(1, machine.cores - 1)
    fastest = max((one.steps_per_s for one in stepping), default=0.0)
    near = [one.num_envs for one in stepping if one.steps_per_s >= NEAR * fastest]
    wanted = max(by_size(machine), min(near, default=1))
    assert best.num_envs <= wanted  # no more than what is nearly the fastest
    if best.num_envs < wanted:
        limits = [room_for(machine.free_bytes), room_for(machine.memory_bytes, OWNERS_BYTES)]
        assert best.num_envs == max(1, min(limits))
    if best.num_envs > 1:
        need = need_bytes(best.num_envs, best.workers)
        assert machine.free_bytes is None or need <= machine.free_bytes
        assert machine.memory_bytes is None or need <= machine.memory_bytes - OWNERS_BYTES


def room_for(there: int | None, kept: int = 0) -> float:
    """Environments, stepped in the program, that fit into so many bytes."""
    if there is None:
        return float("inf")
    return max((n for n in range(1, MOST_ENVS + 1) if need_bytes(n, 0) <= there - kept), default=1)


def test_facts_survive_the_disk_and_are_of_this_machine_and_software_only(tmp_path):
    path = tmp_path / "folder" / "facts.json"
    known = facts(Stepping(8, 2, 5000.0))
    write(path, known)
    assert read_facts(path) == known
    assert is_of(known, replace(LAPTOP, free_bytes=1, name="renamed"))
    assert not is_of(known, replace(LAPTOP, cores=4))
    assert is_of(known, replace(LAPTOP, memory_bytes=LAPTOP.memory_bytes - 2**16))  # another kernel
    assert not is_of(known, replace(LAPTOP, memory_bytes=LAPTOP.memory_bytes // 2))
    assert not is_of(replace(known, versions={"torch": "1"}), LAPTOP)
    path.write_text(path.read_text().replace('"cores"', '"kernels"'))
    assert read_facts(path) is None
    assert read_facts(tmp_path / "absent") is None


def test_advice_is_what_was_measured_else_by_size(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    by_rule = autotune.advise(host=LAPTOP)
    assert (by_rule.num_envs, by_rule.workers) == (4, 2)
    assert "`trainer autotune` measures whether more are faster" in by_rule.notes[0]
    write(cache_file(LAPTOP.name), facts(Stepping(12, 5, 9000.0)))
    assert (autotune.advise(host=LAPTOP).num_envs, autotune.advise(host=LAPTOP).workers) == (12, 5)
    own = autotune.advise(3, host=LAPTOP)
    assert (own.num_envs, own.notes) == (3, ())
    assert autotune.advise(50, host=replace(LAPTOP, free_bytes=GB)).num_envs == 50
    assert autotune.advise(host=replace(LAPTOP, cores=4)).num_envs == 4  # another machine by now
    with refused("autotune.user-id"):
        cache_file("a/b")


def test_whatever_name_it_was_kept_under_it_is_found_on_the_same_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    known = facts(Stepping(4, 2, 900.0))
    elsewhere = replace(known, host=replace(LAPTOP, name="desktop", cores=4), measured_at=known.measured_at + 9)
    assert find_profile(None, LAPTOP) == (None, "")
    write(cache_file("anna"), known)
    write(cache_file("other"), elsewhere)
    cache_file("torn").write_text("{")
    assert find_profile("anna", LAPTOP) == (known, "")
    assert find_profile(None, LAPTOP) == (known, "")
    for name in ("other", "torn", "bob"):
        none, note = find_profile(name, LAPTOP)
        assert (none, f"--user-id {name}" in note) == (None, True)
    newer = replace(known, measured_at=known.measured_at + 1)
    write(cache_file("newer"), newer)
    assert find_profile(None, LAPTOP)[0] == newer


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


def test_cgroup_2_limits_are_those_of_the_tightest_ancestor(tmp_path):
    base = "sys/fs/cgroup"
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "0::/user.slice/job",
            f"{base}/user.slice/cpu.max": "350000 100000",
            f"{base}/user.slice/job/cpu.max": "max 100000",
            f"{base}/user.slice/memory.max": str(8 * GB),
            f"{base}/user.slice/memory.current": str(3 * GB),
            f"{base}/user.slice/memory.stat": f"anon 5\ninactive_file {GB}",
            f"{base}/user.slice/job/memory.max": "max",
        },
    )
    assert cpu_quota(root) == 3.5
    assert memory_limit(root) == (8 * GB, 6 * GB)


def test_cgroup_1_limits_of_a_container_whose_path_is_not_mounted(tmp_path):
    base = "sys/fs/cgroup"
    root = tree(
        tmp_path,
        {
            "proc/self/cgroup": "9:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc",
            f"{base}/cpu/cpu.cfs_quota_us": "150000",
            f"{base}/cpu/cpu.cfs_period_us": "100000",
            f"{base}/memory/memory.limit_in_bytes": str(2 * GB),
            f"{base}/memory/memory.usage_in_bytes": str(GB),
        },
    )
    assert cpu_quota(root) == 1.5
    assert memory_limit(root) == (2 * GB, GB)
    free = tree(
        tmp_path, {f"{base}/memory/memory.limit_in_bytes": "9223372036854771712", f"{base}/cpu/cpu.cfs_quota_us": "-1"}
    )
    assert (cpu_quota(free), memory_limit(free)) == (None, (None, None))


def test_more_environments_than_the_machine_has_memory_for_are_refused_before_anything_is_built():
    """A student's own number is taken, unless there is no such memory at all."""
    with refused("cli.num-envs-above-memory", num_envs=4096):
        check_room(MemoryPlan(4096, 7), LAPTOP)
    check_room(MemoryPlan(600, 7), LAPTOP)
    check_room(MemoryPlan(4096, 7), replace(LAPTOP, memory_bytes=None))


def test_what_is_tried_has_the_number_of_its_size_and_leaves_the_owner_theirs():
    tried = list(choices(Host("h", 6, 64 * GB, 60 * GB)))
    assert [envs for envs, workers in tried if not workers] == [1, 2, 4, 8, 10, 16]
    assert {workers for _, workers in tried} == {0, 2, 3, 4, 5}
    assert all(workers <= envs // 2 for envs, workers in tried)
    assert tried == sorted(tried)
    assert list(choices(Host("h", 6, 8 * GB, 0))) == [(1, 0)]


def test_memory_as_the_two_systems_print_it():
    assert memory_of("MemTotal:       16000 kB\nMemFree:  10 kB\nMemAvailable:    8000 kB\n") == (16_384_000, 8_192_000)
    assert memory_of("") == (None, None)
    # The shape of vm_stat(1) on Apple silicon.
    text = (
        "Mach Virtual Memory Statistics: (page size of 16384 bytes)\nPages free:                               5000.\n"
        "Pages active:                           210000.\nPages inactive:                         200000.\n"
        "Pages speculative:                         500.\nPages purgeable:                            10.\n"
    )
    assert mac_free(text) == 16384 * 205_510
    assert mac_free("vm_stat: command not found") is None
