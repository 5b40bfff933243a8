"""A cluster that was set up anew counts its jobs from 1 again: an id of ours may then be somebody else's."""

from __future__ import annotations

import shutil

import pytest
from relay import NewRelay
from slurm_cluster import PrivateSlurm
from slurm_relay import on_slurm

pytestmark = pytest.mark.slurm


@pytest.mark.long
@pytest.mark.parametrize("how", [["--now"], pytest.param([], marks=pytest.mark.long)])
def test_a_stop_leaves_the_users_other_job_alone_that_has_got_our_old_id(
    private_slurm: PrivateSlurm, new_relay: NewRelay, how: list[str]
) -> None:
    slurm = private_slurm(nodes=2)
    relay = on_slurm(new_relay, slurm, total=100_000, slurm={"extra": ["--nodelist=n1"]})
    controller = relay.spawn("start")
    relay.wait_for_step(2)
    ours = int(relay.status()["slots"][0]["job_id"])
    slurm.kill_node("n1")  # or it would tell the new slurmctld of a job that this one does not know, and must kill
    slurm.stop_controller()
    shutil.rmtree(slurm.folder / "state")
    (slurm.folder / "state").mkdir()
    slurm.start_controller()
    while (other := slurm.submit("sleep 600", "--nodelist=n2")) != ours:
        slurm.run("scancel", str(other))
    slurm.wait_for_state(other, "RUNNING")
    relay.wait_for(lambda: relay.status()["slots"][0]["state"] == "blind", "the job to be missing from the queue")

    relay.spawn("stop", *how, *([] if how else ["--grace", "0"]))

    relay.wait_for(lambda: relay.ledger()["control"] == 1, "the controller to hear of it")
    heard = relay.ledger()["beat"]
    relay.wait_for(
        lambda: relay.ledger()["beat"] >= heard + 3 or controller.poll() is not None, "some looks more, or its end"
    )
    row = slurm.job(other)
    assert row is not None
    assert row.state == "RUNNING"
    assert relay.events("cancelled") == []
