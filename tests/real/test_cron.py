"""The crontab as a host: the real crontab(1), its line run as cron runs it, and the real daemon itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from crontabs import OTHERS, RUN, install, make_stand_in, others_in_it, table
from daemons import PATIENCE_S, alone, wait_for
from needs import need
from relay import SUPPORT, NewRelay, Relay

#: cron(8) begins each job with no more than this.
CRONS_PATH = "/usr/bin:/bin"


@pytest.fixture
def crontab() -> Iterator[bytes]:
    """The user's own table by the real crontab(1): what it holds, with `OTHERS` behind. It is as before at the end.

    A user has one table. Whoever else runs these tests, in another checkout, waits.
    """
    need("cron", [name for name in ("crontab",) if shutil.which(name) is None])
    with alone("crontab"), others_in_it() as whole:
        yield whole


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`crontab` has a table of its own, with `OTHERS` in it: no daemon ticks it, and the user's stays away."""
    make_stand_in(tmp_path / "stand-in")
    monkeypatch.setenv("PATH", f"{tmp_path / 'stand-in'}:{os.environ['PATH']}")
    install(OTHERS)


def lines_of(relay: Relay) -> list[str]:
    """The run's lines in the table."""
    return [line for line in table().decode().splitlines() if line.endswith(f"# anchorleg {run_id_of(relay)}")]


def run_id_of(relay: Relay) -> str:
    return str(json.loads((relay.run_dir / "run.json").read_text())["run_id"])


def as_cron_does(relay: Relay, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line's command: its own shell, almost no environment, the home folder."""
    command = line.split(" ", 5)[5].replace("\\%", "%")
    path = f"{Path(shutil.which('crontab') or '/').parent}:{CRONS_PATH}"
    env = {"HOME": relay.env["HOME"], "LOGNAME": "somebody", "SHELL": "/bin/sh", "PATH": path}
    return subprocess.run(
        ["/bin/sh", "-c", command], cwd="/", env=env, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def tick_silently(relay: Relay, line: str) -> None:
    done = as_cron_does(relay, line)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.usefixtures("stand_in")
class TestTheTable:
    def test_a_run_is_ticked_to_its_end_and_takes_its_line_out(self, new_relay: NewRelay) -> None:
        name = "a 100% toy's"
        settings = {"run_name": "toy", "run_dir": f"runs/{name}"}
        relay = new_relay(name, total=70, training={"max_runtime_seconds": 1}, notify=["./tell.sh"], **settings)
        tell = relay.folder / "tell.sh"
        tell.write_text('#!/bin/sh\nsleep 0.5\necho "$ANCHORLEG_EVENT" >> heard.txt\n')
        tell.chmod(0o755)

        begun = relay.run("start", "--via", "cron")

        assert begun.code == 0, begun.words
        assert "orchestrator stop toy" in begun.out
        [line] = lines_of(relay)
        assert table() == OTHERS + line.encode() + b"\n"
        give_up_at = time.monotonic() + PATIENCE_S
        while lines_of(relay) and time.monotonic() < give_up_at:
            tick_silently(relay, line)
        assert table() == OTHERS
        relay.assert_exactly_once(70)
        assert relay.status()["state"] == "finished"
        log = (relay.run_dir / "controller.log").read_text()
        assert "submission  slot=0  attempt=1" in log
        assert "cron no longer looks after this run" in log
        assert (relay.folder / "heard.txt").read_text().splitlines() == ["finished", "run finished"]

    def test_twice_is_one_line_and_a_stop_takes_out_its_own(self, new_relay: NewRelay) -> None:
        one, two = (new_relay(name, total=10_000) for name in ("one", "two"))
        for relay in (one, two, one):
            assert relay.run("start", "--via", "cron").code == 0
        assert len(lines_of(one)) == len(lines_of(two)) == 1
        one.wait_for_step(3)

        stopped = one.run("stop")

        assert stopped.code == 0, stopped.words
        assert table() == OTHERS + lines_of(two)[0].encode() + b"\n"
        assert two.run("stop", "--now").code == 0
        assert table() == OTHERS

    def test_beside_a_living_controller_it_is_silent_and_changes_nothing(self, new_relay: NewRelay) -> None:
        relay = new_relay(total=50, held_at=10)
        assert relay.run("start", "--via", "cron").code == 0
        [line] = lines_of(relay)
        controller = relay.spawn("start")
        relay.wait_for(lambda: relay.ledger()["epoch"] == 1, "the controller")

        tick_silently(relay, line)

        assert relay.ledger()["epoch"] == 1
        relay.release()
        assert relay.ended(controller) == 0, relay.output()
        assert table() == OTHERS

    def test_a_trouble_is_said_once(self, new_relay: NewRelay) -> None:
        relay = new_relay(total=10_000)
        assert relay.run("start", "--via", "cron").code == 0
        [line] = lines_of(relay)
        ledger = relay.run_dir / f"ledger-{relay.ledger()['epoch']}.json"
        whole = ledger.read_bytes()
        ledger.write_bytes(whole[:100])

        first, second = as_cron_does(relay, line), as_cron_does(relay, line)

        assert first.returncode == second.returncode == 3
        assert ledger.name in first.stderr
        assert (second.stdout, second.stderr) == ("", "")
        ledger.write_bytes(whole)
        tick_silently(relay, line)
        assert relay.run("stop", "--now").code == 0

    def test_a_run_that_was_removed_takes_its_line_with_it_but_not_one_whose_disk_is_away(
        self, new_relay: NewRelay
    ) -> None:
        relay = new_relay(total=10_000)
        assert relay.run("start", "--via", "cron").code == 0
        relay.wait_for_step(1)
        lines = lines_of(relay)
        away = relay.folder.parent / "unmounted"
        relay.run_dir.parent.rename(away)

        assert as_cron_does(relay, lines[0]).returncode == 8
        assert table() == OTHERS + lines[0].encode() + b"\n"

        relay.run_dir.parent.mkdir(exist_ok=True)  # as a mount point without its disk
        assert as_cron_does(relay, lines[0]).returncode == 8
        assert table() == OTHERS + lines[0].encode() + b"\n"

        (relay.run_dir.parent / "another").mkdir()
        gone = as_cron_does(relay, lines[0])
        assert "out of the crontab" in gone.stderr
        assert table() == OTHERS

    def test_many_that_change_the_table_at_once_lose_nothing(self) -> None:
        code = (
            "import sys; from orchestrator.hosts import cron\n"
            "with cron._alone(): cron._install(cron.with_line(cron.read_table(), sys.argv[1], sys.argv[2].encode()))"
        )
        lines = [f"0 5 31 2 * true # anchorleg run-{number}\n" for number in range(6)]
        children = [
            subprocess.Popen([sys.executable, "-c", code, f"run-{number}", line]) for number, line in enumerate(lines)
        ]
        assert [child.wait(PATIENCE_S) for child in children] == [0] * len(lines)
        assert sorted(table().removeprefix(OTHERS).decode().splitlines(keepends=True)) == lines

    def test_one_who_may_not_have_a_table_is_told_before_anything_is_begun(
        self, new_relay: NewRelay, tmp_path: Path
    ) -> None:
        forbidding = tmp_path / "bin" / "crontab"
        forbidding.parent.mkdir()
        forbidding.write_text("#!/bin/sh\necho 'You (me) are not allowed to use this program (crontab)' >&2\nexit 1\n")
        forbidding.chmod(0o755)
        relay = new_relay(total=10)
        relay.env["PATH"] = f"{forbidding.parent}:{os.environ['PATH']}"

        relay.run("start", "--via", "cron").assert_refused(2, "not allowed to use this program", "--via daemon")

        assert not relay.run_dir.exists()


@pytest.mark.usefixtures("stand_in")
def test_the_users_table_is_put_right_after_a_test_that_was_killed() -> None:
    theirs, newer = b"MAILTO=me\n0 5 31 2 *  true\n", b"0 6 31 2 *  true\n"
    install(theirs)
    code = "import os; from crontabs import others_in_it\nwith others_in_it(): os.kill(os.getpid(), 9)"
    env = {**os.environ, "PYTHONPATH": str(SUPPORT)}
    killed = subprocess.run([sys.executable, "-c", code], env=env, check=False, timeout=PATIENCE_S)
    assert killed.returncode == -9
    assert table() == theirs + OTHERS  # theirs is in force meanwhile
    install(table() + f"* * * * * true # anchorleg {RUN}-0123abcd\n".encode() + newer)

    with others_in_it() as whole:
        assert whole == table() == theirs + newer + OTHERS

    assert table() == theirs + newer


@pytest.mark.usefixtures("stand_in")
def test_a_users_table_without_a_last_newline_keeps_its_command() -> None:
    install(b"0 5 31 2 * true")
    with others_in_it() as whole:
        assert whole == table() == b"0 5 31 2 * true\n" + OTHERS
    assert table() == b"0 5 31 2 * true\n"


@pytest.mark.usefixtures("stand_in")
def test_a_users_table_that_cannot_be_read_is_not_replaced(tmp_path: Path) -> None:
    theirs, broken = b"0 5 31 2 * true\n", tmp_path / "stand-in" / "crontab.broken"
    install(theirs)
    broken.touch()
    with pytest.raises(RuntimeError, match="Input/output error"), others_in_it():
        pass
    broken.unlink()
    assert table() == theirs
    with pytest.raises(RuntimeError, match="Input/output error"), others_in_it():
        broken.touch()
    broken.unlink()
    assert table() == theirs + OTHERS  # the next run takes ours out


def test_the_real_crontab_takes_a_line_as_it_is_and_gives_it_back(new_relay: NewRelay, crontab: bytes) -> None:
    name = "a 100% toy's"
    relay = new_relay(name, total=10_000, run_name=RUN, run_dir=f"runs/{name}")

    for _ in range(2):  # in the place of the older one
        begun = relay.run("start", "--via", "cron")
        assert begun.code == 0, begun.words
        [line] = lines_of(relay)
        assert table() == crontab + line.encode() + b"\n"

    assert relay.run("stop", "--now").code == 0
    assert table() == crontab


@pytest.mark.long
def test_the_real_daemon_takes_a_run_to_its_end(new_relay: NewRelay, crontab: bytes) -> None:
    need("cron", [name for name in ("cron",) if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") is None])
    need("cron's daemon", [] if os.getuid() == 0 else ["root"])
    relay = new_relay(RUN, total=40, training={"max_runtime_seconds": 1})
    assert relay.run("start", "--via", "cron").code == 0
    assert len(lines_of(relay)) == 1
    daemon = subprocess.Popen([shutil.which("cron", path="/usr/sbin") or "cron", "-f"], start_new_session=True)
    try:
        wait_for(lambda: not lines_of(relay), "cron to tick the run to its end")
    finally:
        daemon.terminate()
        daemon.wait(PATIENCE_S)

    assert table() == crontab
    relay.assert_exactly_once(40)
    assert relay.status()["state"] == "finished"
