"""Limits of partitions, accounts and users: what waits, what is refused for good, and what counts as a failure."""

from __future__ import annotations

from typing import Any

import pytest
from relay import PROGRAMS, NewRelay
from slurm_cluster import PrivateSlurm, SlurmCluster
from slurm_relay import ends, on_slurm, rows_of

pytestmark = pytest.mark.slurm

#: `orchestrator` that looks again after 2 s, not a minute, where Slurm had no room.
HURRIED = (str(PROGRAMS / "killed.py"), "never", "0")


def limit(slurm: SlurmCluster, *words: str) -> None:
    """Set a limit of the cluster's user: `MaxSubmitJobs=4`."""
    slurm.ask("sacctmgr", "-i", "modify", "user", slurm.ask("id", "-un").strip(), "set", *words)


def states(view: dict[str, Any]) -> list[str]:
    return [slot["state"] for slot in view["slots"]]


def assert_waited_for_room(seen: list[dict[str, Any]], *words: str) -> None:
    """At some moment a slot had no job, and said why; at none was that a failure."""
    waiting = [slot["why"] for view in seen for slot in view["slots"] if slot["state"] == "waiting" and slot["why"]]
    assert any(all(word in why for word in words) for why in waiting), waiting
    assert {slot["failures"] for view in seen for slot in view["slots"]} == {0}
    assert "failed" not in {slot["state"] for view in seen for slot in view["slots"]}


@pytest.mark.long
def test_a_users_limit_of_4_jobs_is_filled_up_as_room_comes(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = private_slurm(nodes=1, accounting=True)
    limit(slurm, "MaxSubmitJobs=4")
    others = [slurm.submit("sleep 600", "--mem=10M") for _ in range(2)]
    relay = on_slurm(new_relay, slurm, slots=4, total=50, pace_s=0.02, held_at=10)

    with relay.watched(every_s=0.5) as seen:
        controller = relay.spawn("start", driver=HURRIED)
        relay.wait_for(lambda: min(relay.counted(0), relay.counted(1)) > 0, "two slots at work")
        relay.wait_for(lambda: seen and states(seen[-1])[2:] == ["waiting"] * 2, "two slots that wait")
        slurm.ask("scancel", str(others[0]))
        relay.wait_for(lambda: max(relay.counted(2), relay.counted(3)) > 0, "one of them to find room")
        relay.release()
        assert relay.ended(controller) == 0, relay.output()  # the last slot got its room from one that finished

    for slot in range(4):
        relay.assert_exactly_once(50, slot)
        assert relay.attempts(slot) == [0]
    assert_waited_for_room(seen, "AssocMaxSubmitJobLimit")
    assert ends(slurm, relay).count("COMPLETED") == 4


@pytest.mark.long
def test_the_users_other_jobs_are_left_alone_but_counted(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = private_slurm(nodes=1)
    array = slurm.submit("sleep 600", "--array=0-2%1", "--mem=10M")  # one runs, two wait: three jobs
    relay = on_slurm(new_relay, slurm, slots=2, total=50, held_at=10, slurm={"max_jobs": 4})

    with relay.watched(every_s=0.5) as seen:
        controller = relay.spawn("start")
        relay.wait_for(lambda: [s["why"] for s in (seen or [{"slots": []}])[-1]["slots"] if s["why"]], "a full queue")
        relay.wait_for_step(1, slot=0)
        assert relay.counted(1) == 0
        slurm.ask("scancel", f"{array}_2")
        relay.wait_for_step(1, slot=1)
        relay.release()
        assert relay.ended(controller) == 0, relay.output()

    for slot in (0, 1):
        relay.assert_exactly_once(50, slot)
    assert_waited_for_room(seen, "4 of 4 (slurm.max_jobs) are taken by 1 slot and 3 other jobs of yours")
    left = sorted(row.state for row in slurm.squeue())
    assert left == ["PENDING", "RUNNING"]  # the rest of the array


@pytest.mark.long
@pytest.mark.parametrize(
    ("section", "overrides", "words"),
    [
        ({"constraint": "nope"}, {}, "Invalid feature specification"),
        ({"account": "nobody"}, {}, "Invalid account or account/partition combination specified"),
        ({"extra": ["--partition=short"]}, {"EnforcePartLimits": "ALL"}, "Requested time limit is invalid"),
    ],
    ids=["constraint", "account", "time"],
)
def test_what_slurm_will_never_accept_is_told_in_its_own_words(
    private_slurm: PrivateSlurm, new_relay: NewRelay, section: dict[str, Any], overrides: dict[str, str], words: str
) -> None:
    slurm = private_slurm(nodes=1, accounting="account" in section, overrides=overrides)
    relay = on_slurm(new_relay, slurm, slots=2, total=10, slurm=section)

    refused = relay.run("start")

    refused.assert_refused(6, words, "[slots.refused]")
    view = relay.status()
    assert view["state"] == "failed"
    assert all(words in slot["why"] for slot in view["slots"])
    none = {"extra": "[]"}
    again = relay.run("start", *(f"--set=slurm.{key}={none.get(key, 'null')}" for key in section))
    assert again.code == 0, again.words
    for slot in (0, 1):
        relay.assert_exactly_once(10, slot)


@pytest.mark.long
def test_a_job_that_would_pend_for_ever_is_taken_back_with_what_to_change(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    slurm = private_slurm(nodes=1)  # without EnforcePartLimits: accepted, and never started
    relay = on_slurm(new_relay, slurm, slots=1, total=10, slurm={"extra": ["--partition=short"]})

    refused = relay.hurried("start")

    assert refused.code in {6, 10}, refused.words
    assert "PartitionTimeLimit" in refused.words
    assert "slurm.time_limit" in refused.words
    assert rows_of(slurm, relay) == []
    assert relay.status()["state"] == "failed"
    again = relay.run("start", "--time-limit", "3", "--set=slurm.extra=[]")
    assert again.code == 0, again.words
    relay.assert_exactly_once(10)
