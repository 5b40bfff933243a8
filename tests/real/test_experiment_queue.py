"""More experiments than jobs, on a real Slurm and on this machine, and what a person asks of them meanwhile."""

from __future__ import annotations

import json
import shlex
from itertools import accumulate
from typing import Any

import pytest
from relay import REPOSITORY, NewRelay, Relay
from slurm_cluster import PrivateSlurm, SlurmCluster
from slurm_relay import on_slurm
from test_users_limits import HURRIED, limit

MANY = 40
PLACES = 4


def most_at_once(relay: Relay, slots: int) -> int:
    """How many jobs have been at work at one moment, by their own records: from the claim to the exit."""
    changes = []
    for slot in range(slots):
        for attempt in relay.attempts(slot):
            changes.append((relay.read("claim", attempt, slot)["at"], 1))
            changes.append((relay.read("exit.json", attempt, slot)["at"], -1))
    return max(accumulate(change for _, change in sorted(changes)))


def states(relay: Relay) -> list[str]:
    return [slot["state"] for slot in relay.status()["slots"]]


@pytest.mark.slurm
@pytest.mark.long
def test_forty_experiments_share_four_jobs_while_a_person_changes_his_mind_and_controllers_die(
    slurm: SlurmCluster, new_relay: NewRelay
) -> None:
    relay = on_slurm(
        new_relay, slurm, total=20, pace_s=0.02, held_at=5,
        experiments={"rate": [0.1, 0.01], "seed": list(range(MANY // 2))}, slurm={"max_jobs": PLACES},
    )  # fmt: skip
    controller = relay.spawn("start")
    relay.wait_for(lambda: relay.run_dir.exists() and sum(relay.counted(k) for k in range(MANY)) >= PLACES, "four jobs")
    held = [slot for slot in range(MANY) if relay.counted(slot)]

    assert relay.run("pause", str(held[0]), "rate=0.01,seed=1*").code == 0
    assert relay.run("drop", "rate=0.01,seed=0").code == 0
    assert relay.run("add", "rate=9", "seed=9", "--name", "late").code == 0
    relay.wait_for(lambda: relay.ledger().get("requests") == 3, "the controller to take them up")
    controller.kill()
    controller.wait()
    assert relay.run("resume", "rate=0.01,seed=1*").code == 0
    controller = relay.spawn("start")
    relay.release()
    relay.wait_for(lambda: set(states(relay)) == {"finished", "paused", "dropped"}, "all but the two")
    assert relay.run("resume", str(held[0])).code == 0 or controller.poll() is not None
    if relay.ended(controller) != 0:
        again = relay.run("start")
        assert again.code == 0, again.words

    found = states(relay)
    assert (found.count("finished"), found.count("dropped"), len(found)) == (MANY, 1, MANY + 1)
    for slot, state in enumerate(found):
        if state == "finished":
            relay.assert_exactly_once(20, slot)
    assert most_at_once(relay, MANY + 1) <= PLACES


@pytest.mark.long
@pytest.mark.slurm
def test_a_limit_that_nobody_told_is_learned_and_every_experiment_comes_to_its_end(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    slurm = private_slurm(nodes=1, accounting=True)
    limit(slurm, "MaxSubmitJobs=2")
    relay = on_slurm(new_relay, slurm, total=10, pace_s=0.01, held_at=5, experiments={"seed": list(range(6))})
    controller = relay.spawn("start", driver=HURRIED)
    relay.wait_for(lambda: sum(relay.counted(slot) == 5 for slot in range(6)) == 2, "two at work")
    relay.wait_for(lambda: states(relay).count("waiting") == 4, "four that wait")
    why = {slot["why"] for slot in relay.status()["slots"] if slot["state"] == "waiting"}
    assert ["AssocMaxSubmitJobLimit" in words for words in why] == [True], why
    relay.release()
    assert relay.ended(controller) == 0, relay.output()
    for slot in range(6):
        relay.assert_exactly_once(10, slot)
    assert most_at_once(relay, 6) <= 2


@pytest.mark.long
def test_the_best_go_on_and_the_others_are_behind(new_relay: NewRelay) -> None:
    """How far each gets beyond its rung until somebody looks depends on the machine; who is best does not."""
    scores: list[dict[str, Any]] = [{"name": f"e{k}", "score": k / 10} for k in range(9)]
    relay = new_relay(
        total=400, pace_s=0.005, experiments=scores, slurm={"max_jobs": 3, "time_limit": "1:00:00"}, poll_seconds=0.2,
        queue={"metric": "score", "halving": {"first_steps": 10, "factor": 3}}, held_at=399,
    )  # fmt: skip
    controller = relay.spawn("start")
    relay.wait_for_step(1)  # there is a ledger
    relay.wait_for(lambda: any(slot["level"] for slot in relay.ledger()["slots"]), "one that may pass its rung")
    relay.release()
    assert relay.ended(controller) == 0, relay.output()
    view = relay.status()
    found = {slot["name"]: slot["state"] for slot in view["slots"]}
    assert found["e8"] == "finished"
    assert set(found.values()) <= {"finished", "behind"}
    assert (view["queue"]["best"][0]["name"], view["queue"]["best"][0]["value"]) == ("e8", 0.8)
    for slot, state in enumerate(found.values()):
        if state == "finished":
            relay.assert_exactly_once(400, slot)


@pytest.mark.long
def test_the_lines_of_the_page_are_typed_as_they_stand(new_relay: NewRelay) -> None:
    page = (REPOSITORY / "docs" / "experiments.md").read_text()
    config = json.loads(page.split("```json\n")[1].split("```")[0])
    lines = page.split("## Change the queue")[1].split("```")[1].strip().splitlines()
    assert len(lines) == 6
    relay = new_relay(total=10, held_at=5, experiments=config["experiments"], slurm={"max_jobs": 2, "time_limit": "60"})
    (relay.folder / "more.jsonl").write_text('{"rate": 7}\n{"rate": 8, "seed": 1}\n')
    controller = relay.spawn("start")
    relay.wait_for(lambda: relay.counted(0) == relay.counted(1) == 5, "two at work")
    for line in lines:
        done = relay.run(*shlex.split(line)[1:])
        assert done.code == 0, (line, done.words)
    relay.wait_for(lambda: relay.ledger().get("requests") == len(lines), "the controller to take them up")
    slots = relay.status()["slots"]
    assert len(slots) == 9
    assert [slot["state"] for slot in slots[4:6]] == ["dropped", "dropped"]
    assert not {slot["state"] for slot in slots[:4] + slots[6:]} & {"paused", "dropped", "failed"}
    relay.release()
    assert relay.ended(controller) == 0, relay.output()
