"""A program that lives and does nothing: its stacks are printed, it is restarted once, and then its slot stops."""

from __future__ import annotations

import pytest
from relay import NewRelay

STALLING = """
import json, os, time

def report(step):
    path = os.environ["ANCHORLEG_ATTEMPT_DIR"] + "/progress.json"
    with open(path + ".new", "w") as file:
        json.dump({"step": step, "total": 100, "checkpoint_step": 0, "at": time.time()}, file)
    os.replace(path + ".new", path)

def wait_for_godot():
    time.sleep(600)

for step in range(5):
    report(step)
    time.sleep(0.2)
wait_for_godot()
"""


@pytest.mark.long
def test_a_stalled_program_prints_its_stacks_is_restarted_once_and_stops_its_slot(new_relay: NewRelay) -> None:
    limits = {"stall_seconds": 4, "retry_delays_seconds": [0]}
    slurm = {"time_limit": "0:10:00"}
    relay = new_relay(command=["python3", "stalling.py"], relay=limits, slurm=slurm, poll_seconds=0.5)
    (relay.folder / "stalling.py").write_text(STALLING)

    controller = relay.spawn("start")

    assert relay.ended(controller) != 0, relay.output()  # two heartbeats of 30 s at most
    ended = relay.events("ended")
    assert [event["verdict"] for event in ended] == ["stalled", "stalled"]
    assert "its stacks are in" in ended[0]["cause"]
    log = next((relay.run_dir / "jobs" / relay.read("claim", 0)["token"]).glob("job-*.err")).read_text()
    assert "in wait_for_godot" in log
    slot = relay.status()["slots"][0]
    assert (slot["state"], "stalled" in slot["why"]) == ("failed", True)
