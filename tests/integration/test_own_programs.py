"""A program of one's own is given its params, goes on where there is more to do, and keeps what it may keep."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from daemons import started_at
from relay import NewRelay, Relay

COMMAND = ["python3", "./count.py", "@{total}"]


def checkpoints(relay: Relay, slot: int = 0) -> list[int]:
    """The steps of a slot's checkpoints. Errors: ValueError where something else lies beside them."""
    found = (relay.run_dir / "slots" / str(slot)).glob("attempts/*/checkpoints/*")
    return sorted(int(path.name) for path in found)


def test_a_finished_run_is_lengthened_by_another_total_and_says_how(new_relay: NewRelay) -> None:
    relay = new_relay(command=COMMAND, params={"total": 10}, slots=2, slot_overrides={"1": {"total": 20}})
    assert relay.run("start").code == 0
    relay.assert_exactly_once(10, 0)
    relay.assert_exactly_once(20, 1)

    again = relay.run("start")

    assert again.code == 0
    assert "toy is finished. A slot goes on if it is given other params or another command: " in again.out
    assert "`orchestrator start toy --set params.NAME=…`" in again.out
    assert relay.attempts(0) == relay.attempts(1) == [0]
    rehearsed = relay.run("start", "toy", "--dry-run")
    assert "toy is finished. A slot goes on" in rehearsed.out

    longer = relay.run("start", "toy", "--set", "params.total=30")

    assert longer.code == 0, longer.words
    assert "is finished. A slot" not in longer.out
    relay.assert_exactly_once(30, 0)
    assert relay.read("parent.json", 1)["step"] == 10
    relay.assert_exactly_once(20, 1)  # its own total was not changed
    assert relay.attempts(1) == [0]


def test_only_the_newest_checkpoints_stay_over_all_jobs(new_relay: NewRelay) -> None:
    """Each job is asked as it begins, and hands over after its first five steps, or a few more."""
    short = {"max_runtime_seconds": 0.01}
    relay = new_relay(
        command=COMMAND, params={"total": 200}, relay={"keep_checkpoints": 2}, training=short, pace_s=0.01
    )

    done = relay.run("start")

    assert done.code == 0, done.words
    assert len(relay.attempts()) > 3
    last = [relay.read("parent.json", relay.attempts()[-1])["step"], 200]
    assert checkpoints(relay) == last
    assert [n for _, n in relay.journal(0)] == list(range(1, 201))


def test_a_job_that_was_killed_before_it_could_tidy_up_leaves_that_to_the_next_one(new_relay: NewRelay) -> None:
    relay = new_relay(command=COMMAND, params={"total": 20}, relay={"keep_checkpoints": 1}, held_at=5)
    controller = relay.spawn("start")
    relay.wait_for_step(5)
    relay.hand_over()
    relay.wait_for(lambda: len(relay.attempts()) == 2, "the second job")
    relay.hold_at(10)
    relay.wait_for_step(10)
    first = relay.attempt_dir(0) / "checkpoints"
    (first / "3").mkdir()  # as a removal would have found it, had the job lived to make it
    (first / ".2.deleted").mkdir()
    relay.hand_over()
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    assert checkpoints(relay) == [20]
    assert list(first.iterdir()) == []


def test_what_an_ended_job_left_is_gone_before_the_next_program_begins(new_relay: NewRelay) -> None:
    relay = new_relay(command=COMMAND, params={"total": 20}, relay={"keep_checkpoints": 1}, held_at=5)
    controller = relay.spawn("start")
    relay.wait_for_step(5)
    os.kill(controller.pid, signal.SIGSTOP)
    relay.hand_over()
    shim = relay.read("claim", 0)["pid"]
    relay.wait_for(lambda: started_at(shim) is None, "the end of the first job")
    remnant = relay.attempt_dir(0) / "checkpoints" / ".2.deleted"
    remnant.mkdir()
    relay.hold_at(10)
    os.kill(controller.pid, signal.SIGCONT)
    relay.wait_for_step(10)
    assert relay.attempts() == [0, 1]  # the second one's program runs
    assert not remnant.exists()
    relay.release()

    assert relay.ended(controller) == 0, relay.output()


def test_without_a_word_nobody_removes_a_checkpoint(new_relay: NewRelay) -> None:
    relay = new_relay(command=COMMAND, params={"total": 200}, training={"max_runtime_seconds": 0.01}, pace_s=0.01)

    assert relay.run("start").code == 0

    begun = [relay.read("parent.json", attempt)["step"] for attempt in relay.attempts()]
    assert len(begun) > 3
    assert checkpoints(relay) == [*begun[1:], 200]
    relay.assert_exactly_once(200)


def test_render_says_what_a_slot_runs_and_a_misspelt_param_is_refused(new_relay: NewRelay, tmp_path: Path) -> None:
    relay = new_relay(command=COMMAND, params={"total": 10}, slots=2, slot_overrides={"1": {"total": 20}})

    assert "note: it runs python3 ./count.py 20\n" in relay.run("render", "--slot", "1").words
    assert "2 slots of python3 ./count.py 10 (and 1 more)" in relay.run("start", "--dry-run").out
    relay.config.write_text(relay.config.read_text().replace("@{total}", "@{totla}"))
    relay.run("start").assert_refused(2, "command: there is no param for @{totla}", 'did you mean "total"?')
