"""Where a controller lives: told to go on, rehearsed, taken over, under another name, and what it tells a command."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from relay import COMMAND_TIMEOUT_S, REPOSITORY, NewRelay, Relay

from orchestrator.errors import LeaseHeld
from orchestrator.processes import boot_id, host_name
from orchestrator.run.lease import TTL_S


def kill_job(relay: Relay, slot: int = 0) -> None:
    """As a person does who cancels the newest job of a slot."""
    live = [job["job_id"] for job in relay.status()["slots"] if job["slot"] == slot]
    os.kill(int(live[0]), signal.SIGTERM)


def pretend_silence(relay: Relay, silent_s: float) -> None:
    """Make this machine remember that the owner's last beat was so long ago."""
    ledger = relay.ledger()
    seen = {"epoch": ledger["epoch"], "beat": ledger["beat"], "at": time.monotonic() - silent_s}
    (relay.run_dir / "lease" / f"seen-{host_name()}-{boot_id()}.json").write_text(json.dumps(seen))


class TestStartBesideALivingController:
    @pytest.mark.long
    def test_a_paused_slot_goes_on_without_another_controller(self, new_relay: NewRelay) -> None:
        relay = new_relay(total=50, slots=2, held_at=10)
        controller = relay.spawn("start")
        for slot in (0, 1):
            relay.wait_for_step(3, slot)
        refusal = f"process {controller.pid}", "[controller.other-config]"
        relay.run("start", "--set", "slots=3").assert_refused(4, *refusal)
        kill_job(relay)
        relay.wait_for(lambda: relay.status()["slots"][0]["state"] == "paused", "the pause")

        relay.run("start", "--set", "slots=3").assert_refused(4, *refusal)
        told = relay.run("start")

        assert told.code == 0, told.words
        assert f"toy continues slot 0: process {controller.pid}" in told.out
        relay.release()
        assert relay.ended(controller) == 0, relay.output()
        for slot in (0, 1):
            relay.assert_exactly_once(50, slot)
        assert relay.ledger()["epoch"] == 0


class TestStop:
    @pytest.mark.long
    def test_a_hung_owner_does_not_keep_the_run_from_being_stopped(self, new_relay: NewRelay) -> None:
        relay = new_relay(total=10_000)
        hung = relay.spawn("start")
        relay.wait_for_step(3)
        os.kill(hung.pid, signal.SIGSTOP)
        pretend_silence(relay, TTL_S / 3)

        stop = relay.spawn("stop")

        relay.wait_for(lambda: f"process {hung.pid}" in relay.output() and "is silent" in relay.output(), "the reason")
        assert stop.poll() is None, relay.output()
        pretend_silence(relay, TTL_S + 1)
        assert relay.ended(stop) == 0, relay.output()
        assert relay.status()["state"] == "stopped"
        relay.assert_exactly_once(relay.counted())

    @pytest.mark.long
    def test_a_job_that_cannot_be_seen_is_named_and_the_wish_stands(self, new_relay: NewRelay) -> None:
        relay = new_relay(command=["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"])
        relay.killed("between-ticks", "start")
        relay.wait_for((relay.attempt_dir(0) / "claim").exists, "the job")
        record = next(relay.run_dir.glob("jobs/*/local.json"))
        job = json.loads(record.read_text())
        job["supervisor"] |= {"host": "elsewhere", "boot_id": "its own"}
        record.write_text(json.dumps(job))
        driver = relay.folder / "impatient.py"
        waits = "stopping.STOP_MARGIN_S = stopping.QUEUE_TIMEOUT_S = 1.0"
        driver.write_text(
            f"from orchestrator import cli\nfrom orchestrator.hosts import stopping\n{waits}\ncli.main()\n"
        )

        stop = relay.spawn("stop", "--grace", "0", driver=(str(driver),))

        assert relay.ended(stop) == 13, relay.output()
        assert str(job["supervisor"]["pid"]) in relay.output()
        assert "[stop.jobs-left]" in relay.output()
        assert relay.status()["wish"] == "stop"

    @staticmethod
    def started_and_stopped(relay: Relay) -> subprocess.Popen[str]:
        """`start --via daemon`, with a stop that is typed while its controller comes up."""
        driver = relay.folder / "stopped_meanwhile.py"
        driver.write_text(
            "import subprocess\n"
            "from pathlib import Path\n"
            "from types import SimpleNamespace\n"
            "from orchestrator import cli\n"
            "from orchestrator.hosts import detached\n"
            "from orchestrator.run.ledger import write_control\n"
            "from orchestrator.run.rundir import RunDir\n"
            "class Later(subprocess.Popen):\n"
            "    def __init__(self, *words, **more):\n"
            f"        wish = {{'now': 1.0, 'by': 'stop', 'grace_s': {COMMAND_TIMEOUT_S}}}\n"
            f"        write_control(RunDir(Path({str(relay.run_dir)!r})), 'stop', **wish)\n"
            "        super().__init__(*words, **more)\n"
            "detached.subprocess = SimpleNamespace(Popen=Later, DEVNULL=subprocess.DEVNULL)\n"
            "cli.main()\n"
        )
        return relay.spawn("start", "--via", "daemon", driver=(str(driver),))

    @pytest.mark.long
    def test_one_that_is_typed_while_a_controller_comes_up_in_the_background_counts(self, new_relay: NewRelay) -> None:
        relay = new_relay(total=50, held_at=10)

        start = self.started_and_stopped(relay)

        assert relay.ended(start) == 0, relay.output()
        assert "note: `orchestrator stop` was typed after this start and takes precedence." in relay.output()
        assert (relay.status()["wish"], relay.attempts()) == ("stop", [])


class TestRehearsals:
    def test_a_start_shows_the_config_the_script_and_the_jobs_and_makes_no_folder(self, new_relay: NewRelay) -> None:
        relay = new_relay(total=10, slots=2)
        before = sorted(path for path in relay.folder.rglob("*"))

        shown = relay.run("start", "--dry-run")

        assert shown.code == 0, shown.words
        for part in ("run toy: 2 slots", "\n#SBATCH --time=", "a job for slot 1 (attempt 0)", "Nothing was changed."):
            assert part in shown.out
        assert sorted(path for path in relay.folder.rglob("*")) == before

    def test_the_jobs_of_a_queue_are_shown_in_the_order_of_their_turns(self, new_relay: NewRelay) -> None:
        named = [{"name": "low", "priority": 1}, {"name": "high", "priority": 9}, {"name": "mid", "priority": 5}]
        slurm = {"time_limit": "1:00:00", "max_jobs": 2}
        relay = new_relay(total=10, experiments=named, queue={"order": "priority"}, slurm=slurm)

        shown = relay.run("start", "--dry-run").out

        assert re.findall(r"would submit a job for slot (\d)", shown) == ["1", "2"]

    @pytest.mark.long
    def test_a_run_that_goes_on_shows_what_would_be_done_and_nothing_changes(self, new_relay: NewRelay) -> None:
        relay = new_relay(total=10_000, slots=2)
        relay.killed("after-submit", "start", call=2)
        relay.wait_for_step(3, 0)
        relay.wait_for_step(3, 1)
        before = {path: path.stat().st_mtime_ns for path in relay.run_dir.glob("*")}
        before |= {path: path.stat().st_mtime_ns for path in relay.run_dir.glob("[lc]*/*")}

        again = relay.run("start", "--dry-run", "--set", "slots=3")

        assert "a job for slot 2 (attempt 0)" in again.out
        assert again.out.count("would") == 1
        after = {path: path.stat().st_mtime_ns for path in relay.run_dir.glob("*")}
        after |= {path: path.stat().st_mtime_ns for path in relay.run_dir.glob("[lc]*/*")}
        assert after == before
        assert relay.run("stop", "--now").code == 0
        assert "is finished" not in relay.run("start", "--dry-run").out


class TestTheCommandHook:
    @pytest.mark.long
    def test_it_is_told_of_each_end_once_also_by_a_second_controller(self, new_relay: NewRelay) -> None:
        relay = new_relay(total=30, slots=2, notify=["./tell.sh"])
        heard = relay.folder / "heard.txt"
        tell = relay.folder / "tell.sh"
        tell.write_text('#!/bin/sh\necho "$ANCHORLEG_EVENT|$ANCHORLEG_SLOT|$ANCHORLEG_RUN_NAME|$(cat)" >> heard.txt\n')
        tell.chmod(0o755)

        assert relay.run("start").code == 0
        assert relay.run("start").code == 0

        told = [line.split("|", 3) for line in heard.read_text().splitlines()]
        assert sorted((event, slot) for event, slot, _, _ in told) == [
            ("finished", "0"), ("finished", "1"), ("run finished", ""),
        ]  # fmt: skip
        facts = json.loads(told[0][3])
        assert facts["run_name"] == told[0][2] == "toy"
        assert Path(facts["run_dir"]) == relay.run_dir


@pytest.mark.long
def test_the_crontabs_line_of_the_docs_takes_a_run_to_its_end(new_relay: NewRelay) -> None:
    """As cron runs it: a shell of its own, almost no environment, the home folder."""
    [command] = re.findall(r"^\* \* \* \* \* (.+)$", (REPOSITORY / "docs" / "cluster.md").read_text(), re.MULTILINE)
    relay = new_relay("mt10", total=40, pace_s=0.05, held_at=3, training={"max_runtime_seconds": 1})
    home = relay.env["HOME"] = str(relay.folder)
    del relay.env["XDG_STATE_HOME"]
    program = relay.folder / "anchorleg" / ".venv" / "bin" / "orchestrator"
    program.parent.mkdir(parents=True)
    own = {"PYTHONPATH": relay.env["PYTHONPATH"], "TMPDIR": relay.env["TMPDIR"]}  # what its installation gives it
    words = shlex.join(["exec", "env", *(f"{name}={value}" for name, value in own.items()), sys.executable])
    program.write_text(f'#!/bin/sh\n{words} -m orchestrator "$@"\n')
    program.chmod(0o755)

    def tick() -> int:
        env = {"HOME": home, "LOGNAME": "somebody", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}
        return subprocess.run(
            ["/bin/sh", "-c", command], cwd=home, env=env, check=False, timeout=COMMAND_TIMEOUT_S
        ).returncode

    controller = relay.spawn("start")
    relay.wait_for_step(3)
    assert tick() == LeaseHeld.exit_code
    assert relay.ledger()["epoch"] == 0
    controller.send_signal(signal.SIGINT)
    relay.ended(controller)
    relay.release()
    codes: list[int] = []
    relay.wait_for(lambda: codes.append(tick()) or relay.status()["state"] == "finished", "ticks to end it")

    assert set(codes) == {0}
    relay.assert_exactly_once(40)
    log = (relay.folder / "mt10.log").read_text()
    assert "slot 0: submitted attempt" in log
    assert f"process {controller.pid}" in log  # the tick beside it said who has the run


class TestForATime:
    """`start --for`: the run stops when the time is over, and no sooner; whatever it has then is saved."""

    @pytest.mark.long
    def test_every_job_saves_and_a_start_goes_on_to_the_end(self, new_relay: NewRelay) -> None:
        relay = new_relay(total=1_000_000, slots=2)
        controller = relay.spawn("start", "--for", "0:00:05")
        assert controller.wait(COMMAND_TIMEOUT_S) == 0, relay.output()
        assert "The time of `start --for` is over; continue with `orchestrator start toy`." in relay.output()
        shown = relay.status()
        assert (shown["state"], shown["wish"], shown["wished_by"]) == ("stopped", "stop", "start --for")
        assert [job["job_id"] for job in shown["slots"]] == [None, None]
        saved = [slot["checkpoint_step"] or 0 for slot in shown["slots"]]

        going = relay.spawn("start")
        for slot in (0, 1):
            relay.wait_for_step(saved[slot] + 3, slot)
        assert relay.status()["until"] is None
        relay.run("stop")
        going.wait(COMMAND_TIMEOUT_S)
