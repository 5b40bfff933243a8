"""`syncd install` to `uninstall`, with a stand-in for launchctl that really runs what the plist says."""

from __future__ import annotations

import json
import os
import plistlib
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("metaworld")

from daemons import PATIENCE_S, started_at, wait_for
from published import RUN, publish
from service_managers import FakeLaunchd, install_program

from syncd import store
from syncd.background.crashes import MAX_CRASHES, read_record
from syncd.background.service import LABEL
from syncd.commands.service import FOR_A_PERSON
from syncd.errors import ProtocolError

ROOT = Path(__file__).resolve().parents[2]
#: The commands as they run on macOS. What launchd then starts runs as itself.
AS_A_MAC = """
from functools import partial
from syncd.background import service
from syncd.cli import main
service.manager = partial(service.manager, platform="darwin")
main()
"""


def test_a_peer_of_another_protocol_is_for_a_person() -> None:
    assert issubclass(ProtocolError, FOR_A_PERSON)
    assert ProtocolError.exit_code == 6


class Mac:
    """A home folder with a launchctl on its PATH."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "ho me & co"
        self.home.mkdir()
        self.shared, self.mirror = folder / "shared", folder / "mirror 100%"
        self.fake = FakeLaunchd(folder / "launchd")
        install_program(folder / "bin", "launchctl", folder / "launchd")
        self.env = {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        }
        self.record_file = self.home / ".config/anchorleg/agent.json"
        self.log = self.home / "Library/Logs/anchorleg/syncd.log"

    def syncd(self, *words, code=0):
        command = [sys.executable, "-c", AS_A_MAC, *map(str, words)]
        done = subprocess.run(
            command, env=self.env, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def install(self, **expected):
        return self.syncd("install", self.shared, self.mirror, **expected)

    def plist(self):
        return plistlib.loads((self.home / "Library/LaunchAgents" / f"{LABEL}.plist").read_bytes())

    def start(self):
        """What the plist says, as written."""
        value = self.plist()
        env = {"HOME": str(self.home), **value["EnvironmentVariables"]}
        with open(value["StandardOutPath"], "ab") as log:
            return subprocess.Popen(
                value["ProgramArguments"], env=env, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def pid(self):
        return self.fake.load()["pid"]

    def newest(self):
        found = store.newest(store.Shared(self.mirror).slot(RUN, 0))
        return found.version if found else None

    def clean_up(self):
        pid = self.pid()
        if pid and started_at(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def mac(tmp_path):
    made = Mac(tmp_path)
    publish(made.shared, seq=1)
    yield made
    made.clean_up()


def gone(pid):
    return started_at(pid) is None


@pytest.mark.long
def test_it_mirrors_from_install_to_uninstall_and_both_are_idempotent(mac):
    said = mac.install()
    assert f"syncd runs in the background: {mac.shared} → {mac.mirror}" in said
    first = mac.pid()
    wait_for(lambda: mac.newest() == (1, 1), "the first policy")
    publish(mac.shared, seq=2)
    wait_for(lambda: mac.newest() == (1, 2), "the second policy")
    assert f"runs in the background (pid {first})" in mac.syncd("agent-status")

    mac.install()
    second = mac.pid()
    assert second != first
    wait_for(lambda: gone(first), "the end of the first agent")
    assert not gone(second)
    status = json.loads(mac.syncd("agent-status", "--json"))
    assert (status["manager"], status["running"], status["pid"]) == ("launchd", True, second)
    assert (status["agent"]["folder"], status["agent"]["stopped"]) == (str(mac.mirror), "")

    assert f"what it mirrored stays in {mac.mirror}" in mac.syncd("uninstall")
    wait_for(lambda: gone(second), "the end of the second agent")
    assert "nothing to do" in mac.syncd("uninstall")
    assert "not installed" in mac.syncd("agent-status")
    assert mac.newest() == (1, 2)


@pytest.mark.long
def test_an_agent_that_crashes_again_and_again_stays_off_and_says_so(mac):
    mac.install()
    os.kill(mac.pid(), signal.SIGKILL)
    for crashes in range(2, MAX_CRASHES + 1):
        child = mac.start()
        wait_for(lambda n=crashes: len(read_record(mac.record_file).started) == n, f"start {crashes}")
        child.kill()
        child.wait(PATIENCE_S)
    last = mac.start()
    assert last.wait(PATIENCE_S) == 0  # to launchd, done
    assert "it crashed 5 times within 10 minutes" in mac.log.read_text()
    assert "it crashed 5 times" in read_record(mac.record_file).stopped
    again = mac.start()  # a person's, or the next login's
    wait_for(lambda: len(read_record(mac.record_file).started) == 1, "a start that begins anew")
    publish(mac.shared, seq=2)
    wait_for(lambda: mac.newest() == (1, 2), "the policy")
    again.terminate()
    assert again.wait(PATIENCE_S) == 0
    assert read_record(mac.record_file).started == ()


@pytest.mark.long
def test_what_a_person_must_mend_ends_it_for_good_and_install_says_it(mac):
    mac.install()
    mac.shared.rename(mac.shared.with_name("elsewhere"))
    said = mac.install(code=8)
    assert "[service.stopped]" in said
    assert str(mac.shared) in said
    wait_for(lambda: gone(mac.pid()), "the agent's end")
    assert mac.start().wait(PATIENCE_S) == 0  # not to be started again
    mac.fake.save({**mac.fake.load(), "pid": None, "loaded": None})
    said = mac.syncd("agent-status")
    assert re.search(r"syncd has stopped \(\d+ s ago\):", said)
    assert f"{mac.shared} → {mac.mirror}" in said
    mac.shared.with_name("elsewhere").rename(mac.shared)
    mac.install()
    wait_for(lambda: mac.newest() == (1, 1), "the policy")


def test_without_a_service_manager_it_says_what_to_do_by_hand(mac):
    mac.fake.save({**mac.fake.load(), "at_the_screen": False})
    said = mac.install(code=8)
    assert f"Until then run it in a terminal of its own: syncd watch {mac.shared} '{mac.mirror}'" in said
    assert not (mac.home / "Library").exists()
