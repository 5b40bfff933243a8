"""A machine of several GPUs runs as many slots, each on its own. The driver's program is a fake; the rest is real."""

from __future__ import annotations

from typing import Any

import pytest
from daemons import WORK_S
from relay import NewRelay, Relay

#: Says first which GPUs it sees.
COUNT = 'echo "$ANCHORLEG_SLOT ${CUDA_VISIBLE_DEVICES-unset}" >> seen.txt; exec python3 ./count.py %s'


def on_gpus(new_relay: NewRelay, count: int, *, total: int | str = 3, **settings: Any) -> Relay:
    """A run on a machine whose `nvidia-smi` lists so many."""
    relay = new_relay(command=["sh", "-c", COUNT % total], **settings)
    fake = relay.folder / "nvidia-smi"
    lines = "".join(f"GPU {index}: NVIDIA A100 (UUID: GPU-{index}a)\\n" for index in range(count))
    fake.write_text(f"#!/bin/sh\nprintf '{lines}'\n" if count else "#!/bin/sh\necho No devices were found\nexit 6\n")
    fake.chmod(0o755)
    relay.env |= {"PATH": f"{relay.folder}:{relay.env['PATH']}"}
    relay.env.pop("CUDA_VISIBLE_DEVICES", None)
    return relay


def seen(relay: Relay) -> dict[int, set[str]]:
    """Slot → what its jobs saw."""
    found: dict[int, set[str]] = {}
    for line in (relay.folder / "seen.txt").read_text().splitlines():
        slot, _, gpus = line.partition(" ")
        found.setdefault(int(slot), set()).add(gpus)
    return found


@pytest.mark.long
def test_four_slots_have_a_gpu_each_and_keep_it_in_their_next_jobs(new_relay: NewRelay) -> None:
    relay = on_gpus(new_relay, 4, slots=4, total=100_000)
    for attempts in ([0], [0, 1]):
        controller = relay.spawn("start")
        relay.wait_for(lambda: all(relay.attempts(slot) == attempts for slot in range(4)), f"attempts {attempts}")  # noqa: B023
        relay.wait_for(lambda: relay.status()["slots"][3]["gpus"] == "3", "status to tell the GPU of slot 3")
        assert "(GPU 3)" in relay.run("explain", "3").out
        assert relay.run("stop").code == 0
        assert controller.wait(WORK_S) == 0, relay.output()
        assert "share" not in relay.output()

    assert seen(relay) == {0: {"0"}, 1: {"1"}, 2: {"2"}, 3: {"3"}}
    for slot in range(4):
        assert [relay.read("claim", attempt, slot)["gpus"] for attempt in relay.attempts(slot)] == [str(slot)] * 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("count", "slots", "gpus", "theirs", "note"),
    [
        (4, 2, 2, {0: {"0,1"}, 1: {"2,3"}}, ""),
        (2, 3, 1, {0: {"0"}, 1: {"1"}, 2: {"0", "1"}}, "share 2 GPUs of this machine"),
        (2, 1, 0, {0: {""}}, ""),
        (0, 2, 1, {0: {"unset"}, 1: {"unset"}}, ""),
    ],
)
def test_slots_get_what_they_ask_for_and_share_what_is_missing(
    new_relay: NewRelay, count: int, slots: int, gpus: int, theirs: dict[int, set[str]], note: str
) -> None:
    relay = on_gpus(new_relay, count, slots=slots, slurm={"time_limit": "0:00:23", "gpus": gpus})

    rehearsed, done = relay.run("start", "--dry-run"), relay.run("start")

    assert done.code == 0, done.words
    found = seen(relay)
    assert found.keys() == theirs.keys()
    assert all(found[slot] <= theirs[slot] for slot in theirs)  # the last one gets what carries less by then
    assert done.words.count("note: ") == (1 if note else 0)
    assert note in done.words
    assert note in rehearsed.out


@pytest.mark.long
def test_a_slot_that_takes_anothers_place_gets_the_gpu_that_is_free(new_relay: NewRelay) -> None:
    rows = [{"name": name, "total": total} for name, total in (("a", 100_000), ("b", 3), ("c", 3))]
    relay = on_gpus(new_relay, 2, total="@{total}", experiments=rows, slurm={"max_jobs": 2, "time_limit": "1:00:00"})
    controller = relay.spawn("start")
    relay.wait_for(lambda: relay.attempts(2) == [0], "the last one to begin")
    relay.wait_for(lambda: relay.status()["slots"][2]["state"] == "finished", "the last one to finish")
    assert seen(relay) == {0: {"0"}, 1: {"1"}, 2: {"1"}}
    assert "share" not in relay.output()
    assert relay.run("stop").code == 0
    assert controller.wait(WORK_S) == 0, relay.output()
