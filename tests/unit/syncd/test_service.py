"""The background service: both files as their readers see them, and what an agent does where it cannot go on."""

from __future__ import annotations

import errno
import os
import plistlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from syncd import background
from syncd.background import LABEL, UNIT, Agent, Launchd, ManagerAnswer, Systemd, plist_text, unit_text
from syncd.commands import sync
from syncd.commands.service import run_agent
from syncd.errors import StorageError
from syncd.laptop import status as lock
from syncd.laptop.client import Client
from syncd.laptop.status import holder, mirror_lock
from syncd.wire import protocol

#: What paths may hold and service files can.
WORDS = st.text(
    st.characters(exclude_categories=("C", "Z")) | st.sampled_from("\"'\\%$&<>;{}@# "), min_size=1, max_size=30
)
AGENT = Agent("/opt/my python/bin/python3", "me@host:/data", Path("/home/me/w"), Path("/home/me/l"), {"PATH": "/bin"})


def unquoted(line: str) -> list[str]:
    """A line of a unit as systemd.syntax(7) reads it: words in double quotes, C escapes, `%%` for a per cent."""
    words, rest = [], line
    while rest:
        assert rest[0] == '"', rest
        word, at = "", 1
        while rest[at] != '"':
            if rest[at] in "\\%":
                assert rest[at + 1] in ('"', "\\") if rest[at] == "\\" else rest[at + 1] == "%"
                at += 1
            word += rest[at]
            at += 1
        words.append(word)
        rest = rest[at + 1 :].removeprefix(" ")
    return words


@given(remote=WORDS, folder=WORDS, python=WORDS, value=WORDS)
def test_any_words_survive_both_formats(remote, folder, python, value):
    agent = Agent(f"/{python}", remote, Path("/") / folder, Path("/") / folder, {"PATH": value})
    plist = plistlib.loads(plist_text(agent))
    assert plist["ProgramArguments"] == agent.program
    assert plist["EnvironmentVariables"] == {"PATH": value}
    lines = dict(line.split("=", 1) for line in unit_text(agent).decode().splitlines() if "=" in line)
    command = lines["ExecStart"]
    assert unquoted(command.removeprefix(":")) == agent.program
    assert command.startswith(":") == any("$" in word for word in agent.program)
    assert unquoted(lines["Environment"]) == [f"PATH={value}"]


@pytest.mark.parametrize("odd", ["a\nb", "a\x00b", "\udcff", "\ufffe", "\x1b[31m"])
def test_what_no_service_file_can_hold_is_refused_in_one_sentence(odd):
    for text in (plist_text, unit_text):
        with refused("service.bad-character"):
            text(replace(AGENT, remote=odd))


def test_a_clean_end_is_meant_to_last_and_a_crash_is_not():
    plist = plistlib.loads(plist_text(AGENT))
    assert (plist["KeepAlive"], plist["ProcessType"]) == ({"SuccessfulExit": False}, "Adaptive")
    assert "Restart=on-failure" in unit_text(AGENT).decode().splitlines()


class FakeLaunchd:
    """`launchctl` for one agent of a user at the screen: exit codes and words as `launchctl error <n>` has them.

    `busy`: bootstraps that answer EIO although nothing is printed any more.
    """

    def __init__(
        self,
        *,
        loaded: str | None = None,
        busy: int = 0,
        bootout_code: int = 0,
        disabled: bool = False,
        at_the_screen: bool = True,
    ) -> None:
        self.loaded, self.busy, self.bootout_code, self.disabled = loaded, busy, bootout_code, disabled
        self.at_the_screen = at_the_screen

    def __call__(self, words: Sequence[str]) -> ManagerAnswer:
        _, verb, *rest = words
        if not self.at_the_screen:
            return ManagerAnswer(113, "Could not find domain")
        if verb == "print" and rest[0].count("/") < 2:
            return ManagerAnswer(0, "gui/501 = {\n\ttype = login\n}")
        if verb == "print" and self.loaded:
            return ManagerAnswer(0, f"{rest[0]} = {{\n\tstate = running\n\n\tpid = 4242\n}}")
        if verb == "bootout" and self.loaded:
            self.loaded = None
            return ManagerAnswer(self.bootout_code, "")
        if verb == "enable":
            self.disabled = False
            return ManagerAnswer(0, "")
        if verb == "bootstrap":
            if self.loaded or self.busy or self.disabled:
                self.busy = max(0, self.busy - 1)
                return ManagerAnswer(5, "Bootstrap failed: 5: Input/output error\nTry re-running the command as root")
            self.loaded = rest[1]
            return ManagerAnswer(0, "")
        return ManagerAnswer(113, "Could not find service")


def launchd(folder: Path, **state: Any) -> tuple[Launchd, FakeLaunchd]:
    fake = FakeLaunchd(**state)
    file = folder / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    return Launchd(file, folder / "log", 501, fake), fake


@given(loaded=st.booleans(), busy=st.integers(0, 5), bootout_code=st.sampled_from([0, 36]), disabled=st.booleans())
def test_launchd_ends_where_it_should_from_wherever_it_was(loaded, busy, bootout_code, disabled):
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(background, "LOAD_EVERY_S", 0.0)
        state = {"busy": busy, "bootout_code": bootout_code, "disabled": disabled}
        manager, fake = launchd(Path(name), loaded="old.plist" if loaded else None, **state)
        agent = replace(AGENT, log=Path(name) / "logs" / "syncd.log")
        for _ in range(2):
            manager.install(agent)
            assert plistlib.loads(manager.file.read_bytes())["ProgramArguments"] == agent.program
            assert fake.loaded == str(manager.file)
            assert manager.state().running
            assert agent.log.parent.is_dir()
        assert [manager.uninstall(), manager.uninstall()] == [True, False]
        assert not fake.loaded
        assert not manager.state().installed


def test_where_a_manager_does_not_take_it_nothing_is_said_to_run(tmp_path, monkeypatch):
    monkeypatch.setattr(background, "LOAD_EVERY_S", 0.0)
    manager, _ = launchd(tmp_path / "busy", busy=1000)
    with refused("service.not-loaded", code=5):
        manager.install(replace(AGENT, log=tmp_path / "log"))
    away, _ = launchd(tmp_path / "away", at_the_screen=False)
    with refused("service.no-screen"):
        away.install(AGENT)
    assert not (tmp_path / "away" / "Library").exists()
    units = Systemd(tmp_path / "units" / UNIT, lambda words: ManagerAnswer(1, "Failed to connect to bus"))
    for call in (lambda: units.install(AGENT), units.uninstall, units.state):
        with refused("service.no-session"):
            call()
    assert not (tmp_path / "units").exists()
    monkeypatch.setenv("PATH", "/nowhere")
    with refused("service.no-manager", program="systemctl"):
        Systemd(tmp_path / UNIT).state()


@pytest.fixture
def own_settings(tmp_path, monkeypatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "mirror"


@pytest.mark.parametrize(
    ("number", "is_for_a_person"),
    [(errno.EACCES, True), (errno.EPERM, True), (errno.EROFS, True), (errno.ESTALE, False), (errno.EHOSTDOWN, False)],
)
def test_a_disk_that_refuses_us_is_for_a_person_and_one_that_is_away_is_tried_again(
    own_settings, monkeypatch, capsys, number, is_for_a_person
):
    def fail(*_args: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lock.fcntl, "flock", fail)
    with nullcontext() if is_for_a_person else pytest.raises(StorageError):
        run_agent(str(own_settings.with_name("shared")), own_settings)
    assert ("stays off" in capsys.readouterr().err) == is_for_a_person


@pytest.mark.parametrize("verb", ["pull", "push", "bidirectional", "watch"])
def test_an_agent_waits_for_the_client_of_its_mirror_unless_that_watches_too(own_settings, monkeypatch, verb, capsys):
    lived = []
    with ExitStack() as other:
        other.enter_context(mirror_lock(own_settings, verb))
        monkeypatch.setattr(sync, "_log_line", lambda sentence: other.close())  # it says that it waits
        for owner, name in ((protocol, "program_version"), (Client, "watch")):  # from the start on `status` knows it
            monkeypatch.setattr(owner, name, lambda *_: lived.append(holder(own_settings).verb))
        run_agent(str(own_settings.with_name("shared")), own_settings)
    assert lived == ([] if verb == "watch" else ["watch", "watch"])
    assert ("stays off" in capsys.readouterr().err) == (verb == "watch")
