"""`syncd doctor` against a real sshd: all well, and one fault at a time, each named on its line."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest
from daemons import PATIENCE_S, wait_for
from policies import publish_one
from sshd import Laptop, Sshd, make_key
from watching import client_env, syncd, watching

from syncd.remote import Remote, Settings, store_settings
from syncd.store import Shared

AHEAD_S = 7_200.0
SYNCD = str(Path(sys.executable).parent / "syncd")


class World:
    """A laptop on which `syncd setup` was done, and the other side."""

    def __init__(self, sshd: Sshd, tmp_path: Path) -> None:
        self.sshd = sshd
        self.shared = Shared(tmp_path / "shared")
        publish_one(self.shared, 1, 1)
        self.laptop: Laptop = sshd.new_client("anna")
        self.env = client_env(self.laptop.home)
        self.folder = tmp_path / "mirror"
        self.store()

    def store(self, **changes: object) -> None:
        values: dict[str, object] = {
            "path": str(self.shared.path), "user": self.sshd.user, "host": "127.0.0.1", "port": self.sshd.port,
            "command": SYNCD, "key": self.laptop.key, "known_hosts": self.laptop.known_hosts,
            "ssh_config": self.laptop.config,
        }  # fmt: skip
        remote = Remote.model_validate(values | changes)
        store_settings(Settings(remote=remote, name="anna", folder=self.folder), self.env)

    def doctor(self) -> tuple[int, dict[str, tuple[str, str, str]]]:
        """(exit code, check → (level, what was found, what to do))."""
        done = syncd("doctor", "--json", env=self.env)
        assert "Traceback" not in done.stderr
        told = json.loads(done.stdout)["findings"]
        return done.returncode, {each["check"]: (each["level"], each["found"], each["advice"]) for each in told}


@pytest.fixture
def world(sshd: Sshd, tmp_path: Path) -> World:
    return World(sshd, tmp_path)


def test_where_all_is_well_every_line_says_so(world: World) -> None:
    code, lines = world.doctor()
    assert code == 0, lines
    assert {level for check, (level, _, _) in lines.items() if check != "clock"} == {"ok"}
    assert lines["clock"][0] in {"ok", "warning"}, "a machine that is busy answers late"
    assert world.sshd.fingerprint() in lines["host key"][1]
    assert re.fullmatch(r"works by openssh; 1 policy on offer \(anchorleg \S+ there\)", lines["login"][1])
    assert "anna" in lines["inbox"][1]
    assert "free" in lines["disk"][1]
    assert not world.folder.exists()
    assert not world.shared.inbox_folder.exists()


def test_another_host_key_is_named_and_no_key_is_shown_to_it(world: World) -> None:
    other = make_key(world.laptop.home / "other", "another host").split()
    world.laptop.known_hosts.write_text(f"[127.0.0.1]:{world.sshd.port} {other[0]} {other[1]}\n")
    code, lines = world.doctor()
    assert code == 11
    assert lines["host key"][0] == "problem"
    assert "shows a host key" in lines["host key"][1]
    assert "ssh-keygen -R" in lines["host key"][1]
    assert lines["login"] == ("warning", "not tried", "solve the problem with the host key first")
    assert world.sshd.logins() == world.sshd.refusals() == 0


@pytest.mark.long
def test_a_syncd_or_a_folder_that_is_not_there_is_said(world: World, tmp_path: Path) -> None:
    world.store(command="/nowhere/syncd")
    code, lines = world.doctor()
    assert (code, lines["login"][0]) == (11, "problem")
    assert "[server.no-syncd]" in lines["login"][1]
    world.store(path=str(tmp_path / "elsewhere"))
    code, lines = world.doctor()
    assert (code, lines["login"][0]) == (11, "problem")
    assert "[serve.no-folder]" in lines["login"][1] or "[peer.ends]" in lines["login"][1]


@pytest.mark.long
def test_a_server_whose_clock_is_hours_off_is_named_and_policies_come_all_the_same(
    world: World, tmp_path: Path
) -> None:
    program = tmp_path / "syncd"
    ahead = f"import time; now = time.time; time.time = lambda: now() + {AHEAD_S}"
    program.write_text(f"#!{sys.executable}\n{ahead}\nfrom syncd.cli import main; main()\n")
    program.chmod(0o755)
    world.store(command=str(program))
    code, lines = world.doctor()
    assert (code, lines["clock"][0]) == (11, "problem")
    (seconds,) = re.findall(r"the other side's is (\d+)\.\d s ahead of ours", lines["clock"][1])
    assert int(seconds) == pytest.approx(AHEAD_S, abs=PATIENCE_S)
    with watching(world.folder, "", env=world.env) as watcher:
        watcher.live()
        publish_one(world.shared, 1, 2, created_at=time.time() + AHEAD_S)
        wait_for(lambda: (word := watcher.word()) is not None and word.latency.count == 1, "the policy")
        word = watcher.word()
        assert word is not None
        assert max(word.latency.last) < AHEAD_S / 2
