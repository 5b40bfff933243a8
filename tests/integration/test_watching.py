"""What is left on the screen until somebody has seen enough: `status --watch`, `logs -f`, and a pipe that closes."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys

import pytest
from daemons import PATIENCE_S
from relay import NewRelay, Relay

from anchorleg.output import READER_GONE


def interrupted(relay: Relay, number: int) -> str:
    """End a background command as Ctrl-C does; it must not be an error. Returns what it said."""
    child = relay.children[number]
    child.send_signal(signal.SIGINT)
    assert child.wait(PATIENCE_S) == 0, relay.output_file(number).read_text()
    return relay.output_file(number).read_text()


@pytest.mark.long
def test_watch_and_logs_tell_what_changes_until_ctrl_c(new_relay: NewRelay) -> None:
    relay = new_relay(total=100_000, pace_s=0.02)
    relay.spawn("start")
    relay.wait_for_step(3)
    relay.spawn("status", "--watch")
    relay.spawn("status", "--watch", "--json")
    relay.spawn("logs", "0", "-f")
    relay.wait_for(lambda: "running" in relay.output_file(1).read_text(), "the first picture")
    relay.wait_for(lambda: relay.output_file(2).read_text(), "the first object")

    assert relay.run("stop").code == 0
    relay.wait_for(lambda: "slot 0, stopped" in relay.output_file(1).read_text(), "the change")
    relay.wait_for(lambda: '"state":"stopped"' in relay.output_file(2).read_text(), "the change")

    assert relay.ended(relay.children[3]) == 0  # nothing more can come
    printed = relay.output_file(3).read_text()
    assert "slot is stopped" in printed or "anchorleg: handing over" in printed  # this program prints nothing itself
    told = interrupted(relay, 1)
    assert "Traceback" not in told
    assert told.count("slot 0, running") <= 2  # not once a look
    views = [json.loads(line) for line in interrupted(relay, 2).splitlines()]
    assert views[0]["slots"][0]["job_id"]
    assert views[-1]["state"] == "stopped"


@pytest.mark.long
def test_watch_redraws_on_a_terminal_and_leaves_the_last_picture(new_relay: NewRelay) -> None:
    relay = new_relay(total=3)
    assert relay.run("start").code == 0
    ours, theirs = pty.openpty()
    shown = b""
    with subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "status", "--watch"],
        cwd=relay.folder, env={**relay.env, "TERM": "xterm", "COLUMNS": "100", "LINES": "20"},
        stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
    ) as child:  # fmt: skip
        os.close(theirs)
        while b"finished" not in shown:
            shown += os.read(ours, 4096)
        child.send_signal(signal.SIGINT)
        try:
            while data := os.read(ours, 4096):
                shown += data
        except OSError:
            pass  # Linux says so when the other side has closed
        assert child.wait(PATIENCE_S) == 0
    os.close(ours)
    screen, _, after = shown.partition(b"\x1b[?1049l")  # the other screen is left again
    assert b"\x1b[?1049h" in screen
    assert (b"Ctrl-C" in screen, b"Ctrl-C" in after, b"3/3" in after) == (True, False, True)


def test_a_reader_that_has_enough_is_no_error(new_relay: NewRelay) -> None:
    relay = new_relay(total=3)
    assert relay.run("start").code == 0
    reads, writes = os.pipe()
    os.close(reads)
    with open(writes, "w") as nobody:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", "status"],
            cwd=relay.folder, env=relay.env, stdout=nobody, stderr=subprocess.PIPE, text=True, check=False,
            timeout=PATIENCE_S,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (READER_GONE, "")
