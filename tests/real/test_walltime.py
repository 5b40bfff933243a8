"""A job on a real Slurm is handed over by the signal that announces the end of its walltime."""

from __future__ import annotations

import pytest
from relay import NewRelay
from slurm_cluster import SlurmCluster
from slurm_relay import on_slurm, rows_of

#: Slurm looks at limits every 30 s and signals up to 60 s early: with 2 minutes and a lead of 40 s the signal comes
#: 20 to 50 s after the start, long before the job's own deadline at 80 s.
LIMIT_MINUTES, LEAD_S = 2, 40
#: Ten a second: nobody counts so far in two minutes and the half one that Slurm may be late.
TOTAL = 1_800


@pytest.mark.long
@pytest.mark.slurm
def test_the_signal_before_the_walltime_is_a_hand_over(slurm: SlurmCluster, new_relay: NewRelay) -> None:
    section = {"time_limit": str(LIMIT_MINUTES), "mem": "100M", "cpus_per_task": 1, "gpus": 0}
    relay = new_relay(
        total=100_000, pace_s=0.1, env=slurm.env(), executor="slurm", slurm=section, lead_seconds=LEAD_S, poll_seconds=1
    )
    controller = relay.spawn("start")

    relay.wait_for((relay.attempt_dir(1) / "claim").exists, "the second job")
    at = relay.counted()
    relay.wait_for_step(at + 5)
    assert relay.run("stop").code == 0
    assert relay.ended(controller) == 0

    assert relay.asked()[0] == "SIGUSR2"
    assert relay.events("ended")[0]["verdict"] == "handed over"
    relay.assert_exactly_once(relay.status()["slots"][0]["checkpoint_step"])


@pytest.mark.slurm
@pytest.mark.long
def test_a_program_that_does_not_listen_goes_on_from_the_checkpoint_that_it_had(
    slurm: SlurmCluster, new_relay: NewRelay
) -> None:
    section = {"time_limit": str(LIMIT_MINUTES), "mem": "100M", "cpus_per_task": 1, "gpus": 0}
    relay = new_relay(
        pace_s=0.1, env=slurm.env(), executor="slurm", slurm=section, lead_seconds=LEAD_S, poll_seconds=1,
        command=["python3", "./count.py", str(TOTAL), "deaf"],
    )  # fmt: skip

    done = relay.run("start")

    assert done.code == 0, done.words
    *ends, last = [event["verdict"] for event in relay.events("ended")]
    assert (set(ends), last) == ({"timed out"}, "finished")  # a machine that is slow takes one more
    begun, before = 0, [0]
    for number in range(len(ends) + 1):
        counted = [n for attempt, n in relay.journal(0) if attempt == number]
        if number:
            parent = relay.read("parent.json", number)
            assert parent["attempt"] == number - 1
            assert before[-1] - 100 <= parent["step"] <= before[-1]
            begun = parent["step"]
        assert counted == list(range(begun + 1, counted[-1] + 1))
        before = counted
    assert before[-1] == TOTAL


@pytest.mark.slurm
@pytest.mark.long
def test_a_limit_that_the_site_lowers_while_the_job_runs_is_followed(slurm: SlurmCluster, new_relay: NewRelay) -> None:
    relay = on_slurm(new_relay, slurm, total=60, held_at=20, lead_seconds=LEAD_S)
    controller = relay.spawn("start")
    relay.wait_for_step(20)
    [row] = rows_of(slurm, relay)

    slurm.ask("scontrol", "update", f"JobId={row.job_id}", f"TimeLimit={LIMIT_MINUTES}")
    relay.wait_for(lambda: "0:02:00 of 0:30:00" in relay.status()["slots"][0]["shortened"], "the screens to say so")
    relay.wait_for((relay.attempt_dir(0) / "exit.json").exists, "the hand-over")
    relay.release()
    assert relay.ended(controller) == 0, relay.output()

    assert relay.asked()[0] == "SIGUSR2"
    relay.assert_exactly_once(60)
