"""A program that is not ours is handed over from job to job on this machine, and nothing is lost or done twice."""

from __future__ import annotations

import os
import signal

import pytest
from relay import NewRelay


@pytest.mark.long
def test_ctrl_c_ends_the_controller_and_leaves_the_jobs(new_relay: NewRelay) -> None:
    relay = new_relay(total=100, held_at=5)
    controller = relay.spawn("start")
    relay.wait_for_step(5)

    os.kill(controller.pid, signal.SIGINT)

    assert relay.ended(controller) == 130
    assert "[controller.ended-jobs-go-on]" in relay.output()
    assert relay.status()["state"] == "no controller"
    relay.hold_at(10)
    relay.wait_for_step(10)
    relay.release()
    assert relay.run("start").code == 0
    relay.assert_exactly_once(100)
    assert relay.attempts() == [0]


@pytest.mark.long
def test_a_controller_in_the_background_outlives_the_command_that_began_it(new_relay: NewRelay) -> None:
    relay = new_relay(total=70, training={"max_runtime_seconds": 1})

    begun = relay.run("start", "--via", "daemon")

    assert begun.code == 0, begun.words
    assert "orchestrator stop toy" in begun.out
    relay.wait_for(lambda: relay.status()["state"] == "finished", "the end")
    relay.assert_exactly_once(70)
    assert "slot 0: " in (relay.run_dir / "controller.log").read_text()


@pytest.mark.long
def test_a_run_whose_controller_is_dead_can_be_stopped(new_relay: NewRelay) -> None:
    relay = new_relay(total=10_000)
    controller = relay.spawn("start")
    relay.wait_for_step(5)
    controller.kill()
    controller.wait()
    at = relay.counted()

    stopped = relay.run("stop")

    assert stopped.code == 0, stopped.words
    assert relay.status()["slots"][0]["checkpoint_step"] >= at
    assert relay.status()["state"] == "stopped"


@pytest.mark.long
def test_slots_can_be_taken_away_and_given_back(new_relay: NewRelay) -> None:
    relay = new_relay(total=60, slots=2, held_at=10)
    relay.killed("between-ticks", "start")
    relay.wait_for_step(3, slot=0)
    relay.wait_for_step(3, slot=1)

    controller = relay.spawn("start", "--slots", "1")
    relay.wait_for((relay.attempt_dir(0, slot=1) / "exit.json").exists, "the end of the slot that is taken away")
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    relay.assert_exactly_once(60, slot=0)
    assert relay.counted(slot=1) <= 10
    assert relay.asked(slot=1) == ["asked to"]
    assert relay.run("start").code == 0
    relay.assert_exactly_once(60, slot=1)


@pytest.mark.long
def test_a_ghost_of_an_older_attempt_changes_nothing_that_its_successor_reads(new_relay: NewRelay) -> None:
    relay = new_relay(command=["python3", "./count.py", "350", "deaf"], pace_s=0.01, held_at=120)
    controller = relay.spawn("start")
    relay.wait_for_step(120)
    supervisor = int(relay.read("claim", 0)["job_id"])
    os.kill(supervisor, signal.SIGKILL)  # as a node that the scheduler takes for dead: the job itself lives on
    relay.wait_for((relay.attempt_dir(1) / "parent.json").exists, "its successor")
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    relay.wait_for(lambda: not relay.programs(), "the ghost's own end")

    parent = relay.read("parent.json", 1)
    first, second = ([n for attempt, n in relay.journal(0) if attempt == number] for number in (0, 1))
    published = [int(path.name) for path in (relay.attempt_dir(0) / "checkpoints").iterdir()]
    assert (parent["attempt"], parent["step"]) == (0, 100)
    assert 100 < max(published) <= first[-1]
    assert second == list(range(parent["step"] + 1, 351))
    assert relay.status()["state"] == "finished"


@pytest.mark.long
def test_a_program_that_is_killed_is_run_again_from_its_last_checkpoint(new_relay: NewRelay) -> None:
    relay = new_relay(total=90, held_at=20)
    controller = relay.spawn("start")
    relay.wait_for_step(20)
    relay.hand_over()
    relay.hold_at(50)
    relay.wait_for(lambda: 1 in relay.attempts() and relay.counted() == 50, "the second job")
    saved = relay.read("parent.json", 1)["step"]
    relay.wait_for(lambda: relay.read("progress.json", 1)["step"] == 50, "its report")
    relay.kill_program()
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    assert relay.read("exit.json", 1)["code"] == -9
    assert relay.read("parent.json", 2)["step"] == saved >= 20
    assert [event["verdict"] for event in relay.events("ended")] == ["handed over", "crashed", "finished"]
