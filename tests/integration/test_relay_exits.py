"""How a program ends decides what comes next: the exit codes of the job contract, with programs of one line."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from relay import AT_ONCE, NewRelay


@pytest.mark.long
@pytest.mark.parametrize("code", [75, 1])
def test_a_program_that_saves_one_step_and_ends_has_to_wait_from_the_third_job_on(
    new_relay: NewRelay, code: int
) -> None:
    saves = 'mkdir -p "$ANCHORLEG_ATTEMPT_DIR/checkpoints/$((ANCHORLEG_ATTEMPT + 1))"'
    relay = new_relay(command=["bash", "-c", f"{saves}; exit {code}"], relay=AT_ONCE)
    controller = relay.spawn("start")

    relay.wait_for((relay.attempt_dir(2) / "exit.json").exists, "the third end")
    relay.wait_for(lambda: relay.status()["slots"][0]["retry_at"] is not None, "the wait")

    [slot] = relay.status()["slots"]
    assert (slot["state"], slot["jobs"], slot["failures"]) == ("waiting", 3, 0)
    assert slot["retry_at"] > time.time()
    assert f"exit code {code}" in slot["why"]
    assert slot["why"] in relay.run("explain", "0").out
    assert relay.attempts() == [0, 1, 2]
    assert relay.run("stop").code == 0
    assert relay.ended(controller) == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "cause", "jobs"),
    [
        ("echo 'torch.OutOfMemoryError: CUDA out of memory.' >&2; exit 1", "the GPU ran out of memory twice", 2),
        ("kill -SEGV $$", "killed by signal 11", 6),
    ],
)  # fmt: skip
def test_a_program_that_always_crashes_is_given_up_with_its_cause(
    new_relay: NewRelay, line: str, cause: str, jobs: int
) -> None:
    relay = new_relay(command=["bash", "-c", line], relay=AT_ONCE)

    done = relay.run("start")

    done.assert_refused(10, "slot 0 stopped: ", cause)
    assert relay.attempts() == [*range(jobs)]


@pytest.mark.long
def test_a_program_that_finds_no_room_is_never_given_up_and_not_hammered(new_relay: NewRelay) -> None:
    line = "[ -e room ] || { echo 'OSError: [Errno 122] Disk quota exceeded' >&2; exit 1; }"
    relay = new_relay(command=["bash", "-c", line], relay=AT_ONCE)
    controller = relay.spawn("start")

    relay.wait_for((relay.attempt_dir(6) / "exit.json").exists, "more ends than a program may have")
    relay.wait_for(lambda: relay.ledger()["slots"][0]["node_failures"] == 7, "the last end in the ledger")

    [slot] = relay.ledger()["slots"]
    assert (slot["status"], slot["failures"]) == ("active", 0)
    assert slot["why"].endswith("the disk quota is used up (exit code 1)")
    assert slot["not_before"] > time.time()
    (relay.folder / "room").touch()
    assert relay.run("stop").code == 0
    assert relay.ended(controller) == 0
    assert relay.hurried("start").code == 0, "the next one finds room"


def test_the_program_sees_the_contract_and_nothing_of_the_scratch_stays(new_relay: NewRelay) -> None:
    names = "RUN_DIR SLOT ATTEMPT ATTEMPT_DIR PARENT CONFIG DEADLINE HANDOVER_FILE SCRATCH"
    names += " RUN_ID RUN_NAME SHARED_DIR CONTRIBUTIONS"
    words = "; ".join(f'echo "{name}=$ANCHORLEG_{name}"' for name in names.split())
    relay = new_relay(command=["bash", "-c", f'{words}; touch "$ANCHORLEG_SCRATCH/x"; pwd'], lead_seconds=1200)

    assert relay.run("start").code == 0

    *lines, folder = next(relay.run_dir.glob("jobs/*/job-*.out")).read_text().splitlines()
    told = dict(line.split("=", 1) for line in lines)
    job = next(relay.run_dir.glob("jobs/*"))
    record = relay.read("exit.json", 0)
    assert folder == str(relay.folder)
    assert told["RUN_DIR"] == str(relay.run_dir)
    assert told["ATTEMPT_DIR"] == str(relay.attempt_dir(0))
    assert told["HANDOVER_FILE"] == str(job / "hand-over")
    assert (told["SLOT"], told["ATTEMPT"], told["PARENT"]) == ("0", "0", "")
    assert told["CONFIG"] == str(relay.run_dir / "slots" / "0" / "config.json")
    assert told["RUN_ID"] == json.loads((relay.run_dir / "run.json").read_text())["run_id"]
    assert told["RUN_ID"].startswith(told["RUN_NAME"] + "-")
    assert (told["SHARED_DIR"], told["CONTRIBUTIONS"]) == (str(relay.run_dir / "shared"), "")
    assert float(told["DEADLINE"]) == pytest.approx(record["started_at"] + 3600 - 1200, abs=600)
    assert Path(told["SCRATCH"]).parent == Path(relay.env["TMPDIR"])
    relay.wait_for(lambda: os.listdir(relay.env["TMPDIR"]) == [], "the end of the scratch folder")
