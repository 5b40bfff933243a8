"""`syncd install` to `uninstall`, with a stand-in for launchctl that really runs what the plist says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("metaworld")

from daemons import PATIENCE_S, started_at, wait_for
from published import RUN, publish
from service_managers import FakeLaunchd, install_program, started

from syncd import store
from syncd.background import LABEL

ROOT = Path(__file__).resolve().parents[2]
#: The commands as they run on macOS. What launchd then starts runs as itself.
AS_A_MAC = """
from functools import partial
from syncd import background
from syncd.cli import main
background.manager = partial(background.manager, platform="darwin")
main()
"""


class Mac:
    """A home folder with a launchctl on its PATH."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "ho me & co"
        self.home.mkdir()
        self.shared, self.mirror = folder / "shared", folder / "mirror 100%"
        self.fake = FakeLaunchd(folder / "launchd")
        install_program(folder / "bin", folder / "launchd")
        self.env = {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        }
        self.plist = self.home / "Library/LaunchAgents" / f"{LABEL}.plist"

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

    def pid(self):
        return self.fake.load()["pid"]

    def newest(self):
        found = store.newest(store.Shared(self.mirror).slot(RUN, 0))
        return found.version if found else None


@pytest.fixture
def mac(tmp_path):
    made = Mac(tmp_path)
    publish(made.shared, seq=1)
    yield made
    if (pid := made.pid()) and started_at(pid):
        os.kill(pid, signal.SIGKILL)


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

    mac.install()
    second = mac.pid()
    assert second != first
    wait_for(lambda: gone(first), "the end of the first agent")
    assert not gone(second)
    status = json.loads(mac.syncd("agent-status", "--json"))
    assert (status["manager"], status["running"], status["pid"]) == ("launchd", True, second)

    assert "no longer runs" in mac.syncd("uninstall")
    wait_for(lambda: gone(second), "the end of the second agent")
    assert "nothing to do" in mac.syncd("uninstall")
    assert "not installed" in mac.syncd("agent-status")
    assert mac.newest() == (1, 2)


@pytest.mark.long
def test_what_a_person_must_mend_ends_it_for_good_and_status_says_it(mac):
    mac.install()
    wait_for(lambda: mac.newest() == (1, 1), "the policy")
    os.kill(mac.pid(), signal.SIGKILL)
    mac.shared.rename(mac.shared.with_name("elsewhere"))
    assert started(mac.plist, str(mac.home)).wait(PATIENCE_S) == 0  # to launchd, done: not to be started again
    assert str(mac.shared) in mac.syncd("status", mac.mirror)
    mac.shared.with_name("elsewhere").rename(mac.shared)
    mac.install()
    publish(mac.shared, seq=2)
    wait_for(lambda: mac.newest() == (1, 2), "the policy")


def test_without_a_service_manager_it_says_what_to_do_by_hand(mac):
    mac.fake.save({**mac.fake.load(), "at_the_screen": False})
    said = mac.install(code=8)
    assert f"Until then run it in a terminal of its own: syncd watch {mac.shared} '{mac.mirror}'" in said
    assert not (mac.home / "Library").exists()
