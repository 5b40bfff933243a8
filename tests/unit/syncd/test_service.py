from __future__ import annotations

import errno
import importlib.metadata
import os
import plistlib
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused
from service_managers import FakeLaunchd, FakeSystemd

from syncd.background import crashes, service
from syncd.background.crashes import (
    CRASH_WINDOW_S,
    MAX_CRASHES,
    Record,
    begin,
    end,
    read_record,
    record_file,
    write_record,
)
from syncd.background.service import LABEL, Agent, Launchd, ManagerAnswer, Systemd, plist_text, unit_text
from syncd.commands import service as commands
from syncd.commands import sync
from syncd.commands.service import install, run_agent
from syncd.errors import LoginRefusedError, SecondFactorError, StorageError
from syncd.laptop import lock
from syncd.laptop.client import Client
from syncd.laptop.lock import holder, mirror_lock
from syncd.wire import protocol

NOW = 1_760_086_400.0
#: What paths may hold and service files can: anything but control characters, lone surrogates and non-characters.
WORDS = st.text(
    st.characters(exclude_categories=("Cs", "Cc", "Cn")) | st.sampled_from("\"'\\%$&<>;{}@# "), min_size=1, max_size=30
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
    plist = plistlib.loads(plist_text(agent).encode())
    assert plist["ProgramArguments"] == agent.program
    assert plist["EnvironmentVariables"] == {"PATH": value}
    assert plist["StandardOutPath"] == str(agent.log)
    lines = dict(line.split("=", 1) for line in unit_text(agent).splitlines() if "=" in line)
    command = lines["ExecStart"]
    words = unquoted(command.removeprefix(":"))
    assert command.startswith(":") == any("$" in word for word in words)
    assert words[-len(agent.program) :] == agent.program
    assert words[: -len(agent.program)] == ([] if not set(python) & set("\"'\\") else words[:3])
    assert not set(words[0]) & set("\"'\\")
    assert unquoted(lines["Environment"]) == [f"PATH={value}"]


@pytest.mark.parametrize("odd", ["a\nb", "a\x00b", "\udcff", "\ufffe", "\x1b[31m"])
def test_what_no_service_file_can_hold_is_refused_in_one_sentence(odd):
    for text in (plist_text, unit_text):
        with refused("service.bad-character"):
            text(replace(AGENT, remote=odd))


def test_a_clean_end_is_meant_to_last_and_a_crash_is_not():
    plist = plistlib.loads(plist_text(AGENT).encode())
    assert plist["KeepAlive"] == {"SuccessfulExit": False}
    assert (plist["ThrottleInterval"], plist["ProcessType"], plist["RunAtLoad"]) == (30, "Adaptive", True)
    assert "LowPriorityIO" not in plist
    lines = unit_text(AGENT).splitlines()
    for line in ("Restart=on-failure", "RestartSec=5", "StartLimitIntervalSec=120", "StartLimitBurst=5", "Nice=10"):
        assert line in lines


def launchd(folder: Path, **state: object) -> tuple[Launchd, FakeLaunchd]:
    fake = FakeLaunchd(folder / "launchd", **state)
    return Launchd(folder, 501, lambda words: ManagerAnswer(*fake(words[1:])), lambda _: None), fake


@given(
    loaded=st.booleans(),
    lingers=st.integers(0, 5),
    busy=st.integers(0, service.LOAD_TRIES - 1),
    bootout_code=st.sampled_from([0, 36]),
    disabled=st.booleans(),
)
def test_launchd_ends_where_it_should_from_wherever_it_was(loaded, lingers, busy, bootout_code, disabled):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        state = {"lingers": lingers, "busy": busy, "bootout_code": bootout_code, "disabled": disabled}
        manager, fake = launchd(folder, loaded="old.plist" if loaded else None, **state)
        plist = folder / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        agent = replace(AGENT, log=folder / "logs" / "syncd.log")
        for _ in range(2):
            assert manager.install(agent) == []
            assert plistlib.loads(plist.read_bytes())["ProgramArguments"] == agent.program
            assert fake.load()["loaded"] == str(plist)
            assert manager.state().running
            assert agent.log.parent.is_dir()
        assert [manager.uninstall(), manager.uninstall()] == [True, False]
        assert not plist.exists()
        assert not fake.load()["loaded"]
        assert not manager.state().installed


def test_a_label_that_stays_busy_is_named_with_what_launchd_said(tmp_path):
    manager, _ = launchd(tmp_path, busy=1000)
    with refused("service.not-loaded", tries=20):
        manager.install(replace(AGENT, log=tmp_path / "log"))


def test_without_a_user_at_the_screen_nothing_is_written(tmp_path):
    manager, _ = launchd(tmp_path, at_the_screen=False)
    with refused("service.no-screen"):
        manager.install(AGENT)
    assert not (tmp_path / "Library").exists()
    assert manager.uninstall() is False
    assert not manager.state().running


def test_macos_warns_of_folders_that_it_keeps_agents_out_of(tmp_path):
    manager, _ = launchd(tmp_path)
    mirror = tmp_path / "Documents" / "weights"
    (hint,) = manager.install(replace(AGENT, folder=mirror, log=tmp_path / "log"))
    assert str(mirror) in hint


@pytest.mark.parametrize("part", ["interpreter", "package"])
def test_macos_warns_of_a_program_that_its_agents_cannot_read(tmp_path, monkeypatch, part):
    """An editable installation's package is the checkout, wherever its interpreter lies."""
    manager, _ = launchd(tmp_path)
    agent = replace(AGENT, folder=tmp_path / "weights", log=tmp_path / "log")
    ours = tmp_path / "Downloads" / "anchorleg" / part
    if part == "interpreter":
        agent = replace(agent, python=str(ours))
    else:
        monkeypatch.setattr(service, "PACKAGE", ours)
    (hint,) = manager.install(agent)
    assert str(ours) in hint
    assert "install Anchorleg outside Documents, Desktop and Downloads" in hint


def systemd(folder: Path, monkeypatch, **state: object) -> tuple[Systemd, FakeSystemd]:
    units = folder / "units"
    monkeypatch.setenv("FAKE_UNITS", str(units))
    fake = FakeSystemd(folder / "systemd", **state)
    return Systemd(units, "", lambda words: ManagerAnswer(*fake(words[1:]))), fake


def test_without_a_session_of_systemd_nothing_is_written(tmp_path, monkeypatch):
    manager, _ = systemd(tmp_path, monkeypatch, session=False)
    for call in (lambda: manager.install(AGENT), manager.uninstall, manager.state):
        with refused("service.no-session"):
            call()
    assert not (tmp_path / "units").exists()


def test_no_manager_at_all_is_one_sentence(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with refused("service.no-manager", program="systemctl"):
        service.run(["systemctl", "--user", "show"])


def test_a_folder_that_cannot_be_written_is_a_storage_error(tmp_path, monkeypatch):
    (tmp_path / "units").write_text("a file where the folder should be")
    manager, _ = systemd(tmp_path, monkeypatch)
    with refused("storage.unwritable"):
        manager.install(AGENT)


@given(st.lists(st.floats(0, 2 * CRASH_WINDOW_S), max_size=40))
def test_the_counter_stops_exactly_a_loop(gaps):
    """Starts at these distances, none of which ends well: stopped where more than five fall into one window."""
    record, now, starts = Record(), NOW, []
    for gap in gaps:
        now += gap
        recent = [at for at in starts if now - CRASH_WINDOW_S < at]
        record = begin(record, now)
        assert bool(record.stopped) == (len(recent) >= MAX_CRASHES)
        starts = [] if record.stopped else [*recent, now]


def test_launchds_pace_fills_the_window():
    record = Record()
    for start in range(MAX_CRASHES + 1):
        record = begin(record, NOW + 31.0 * start)
    assert "crashed 5 times" in record.stopped


def test_a_good_end_forgets_and_a_start_after_a_stop_begins_anew():
    crashed = begin(begin(Record(remote="r", folder="f"), NOW), NOW + 1)
    assert end(crashed, NOW + 2).started == ()
    stopped = end(crashed, NOW + 2, because="the key was refused")
    assert (stopped.stopped, stopped.stopped_at, stopped.remote) == ("the key was refused", NOW + 2, "r")
    assert begin(stopped, NOW + 3) == Record(remote="r", folder="f", started=(NOW + 3,))


def test_the_record_survives_the_disk_and_damage(tmp_path):
    path = tmp_path / "folder" / "agent.json"
    record = Record(remote="r", folder="f", started=(NOW,), stopped="why", stopped_at=NOW)
    write_record(path, record)
    assert read_record(path) == record
    path.write_text('{"started": 3}')
    assert read_record(path) == Record()


@pytest.mark.parametrize("agent", ["", "/run/user/1000/keyring/ssh"])
@pytest.mark.parametrize(
    "error",
    [LoginRefusedError("login.key-refused", place="host"), SecondFactorError("login.no-answers", place="host")],
    ids=type,
)
def test_where_a_key_is_refused_and_no_agent_is_seen_the_advice_is_not_to_ask_one(tmp_path, monkeypatch, error, agent):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SSH_AUTH_SOCK", agent)
    monkeypatch.setattr(sys.stdout, "fileno", lambda: 1, raising=False)
    monkeypatch.setattr(crashes, "is_log", lambda fd: False)

    def refuse(client: Client) -> None:
        raise error

    monkeypatch.setattr(Client, "watch", refuse)
    run_agent(str(tmp_path / "shared"), tmp_path / "mirror")
    why = read_record(record_file()).stopped
    assert why.startswith(str(error))
    assert ("`syncd setup --key NEW_FILE` makes it" in why) == (not agent and type(error) is LoginRefusedError)


def with_settings_of_its_own(tmp_path, monkeypatch):
    """For `run_agent` in the test's own process, whose output is no log of an agent."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(sys.stdout, "fileno", lambda: 1, raising=False)
    monkeypatch.setattr(crashes, "is_log", lambda fd: False)


@pytest.mark.parametrize(
    ("number", "is_for_a_person"),
    [(errno.EACCES, True), (errno.EPERM, True), (errno.EROFS, True), (errno.ESTALE, False), (errno.EHOSTDOWN, False)],
)
def test_a_disk_that_refuses_us_is_for_a_person_and_one_that_is_away_is_tried_again(
    tmp_path, monkeypatch, number, is_for_a_person
):
    with_settings_of_its_own(tmp_path, monkeypatch)

    def fail(*_args: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lock.fcntl, "flock", fail)
    with nullcontext() if is_for_a_person else pytest.raises(StorageError):
        run_agent(str(tmp_path / "shared"), tmp_path / "mirror")
    assert bool(read_record(record_file()).stopped) == is_for_a_person


def test_what_is_installed_and_does_not_run_is_not_said_to_run(tmp_path, monkeypatch, capsys):
    class NotRunning:
        def install(self, agent: Agent) -> list[str]:
            return ["it may not read its own program"]

        def state(self) -> service.ServiceState:
            return service.ServiceState("launchd", tmp_path / "plist", True, False, None, "spawn scheduled")

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(service, "manager", NotRunning)
    monkeypatch.setattr(commands, "FIRST_WORD_TIMEOUT_S", 0.0)
    with refused("service.not-running", manager="launchd", detail="spawn scheduled"):
        install(str(tmp_path / "shared"), tmp_path / "mirror")
    said = capsys.readouterr().out
    assert "in the background" not in said
    assert "note: it may not read its own program" in said


@pytest.fixture
def on_disk(monkeypatch) -> Iterator[list[str]]:
    """The version that is installed now."""
    found = ["1.0"]
    monkeypatch.setattr(importlib.metadata, "version", lambda _: found[0])
    protocol.program_version.cache_clear()
    yield found
    protocol.program_version.cache_clear()


def test_an_upgrade_makes_nothing_newer_that_runs_already(tmp_path, monkeypatch, on_disk):
    """What it found bad is for its own version to remember, and the one that comes after it tries that again."""
    with_settings_of_its_own(tmp_path, monkeypatch)
    mirror, said = tmp_path / "mirror", []
    with ExitStack() as other:
        other.enter_context(mirror_lock(mirror, "pull"))

        def upgrade(_sentence: str) -> None:  # while it waits for the other one
            on_disk[0] = "2.0"
            other.close()

        monkeypatch.setattr(sync, "_log_line", upgrade)
        monkeypatch.setattr(Client, "watch", lambda client: said.append(protocol.program_version()))
        run_agent(str(tmp_path / "shared"), mirror)
    assert (said, on_disk) == (["1.0"], ["2.0"])


@pytest.mark.parametrize("verb", ["pull", "push", "bidirectional", "watch"])
def test_an_agent_waits_for_whoever_keeps_the_mirror_unless_that_watches_too(tmp_path, monkeypatch, verb):
    with_settings_of_its_own(tmp_path, monkeypatch)
    mirror, lived = tmp_path / "mirror", []
    with ExitStack() as other:
        other.enter_context(mirror_lock(mirror, verb))
        monkeypatch.setattr(sync, "_log_line", lambda sentence: other.close())  # it says that it waits
        monkeypatch.setattr(Client, "watch", lambda client: lived.append(holder(mirror).verb))
        run_agent(str(tmp_path / "shared"), mirror)
    assert lived == ([] if verb == "watch" else ["watch"])
    assert bool(read_record(record_file()).stopped) == (verb == "watch")
