"""Keys and what the other side has: the parts that need no other side."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from daemons import PATIENCE_S, wait_for
from hypothesis import given
from hypothesis import strategies as st

from syncd.access import keys, survey
from syncd.access.keys import Endpoint, HostKey
from syncd.errors import RemoteError
from syncd.remote import Remote

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="OpenSSH's client is not here")

#: An account that this machine does not have.
STRANGER = 54_321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other accounts")

HOST_KEY = HostKey("ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43)


def place(*files: Path, port: int = 2222, alias: str = "") -> Endpoint:
    return Endpoint(host="gpu.edu", port=port, user="me", alias=alias, known_hosts=files)


def test_a_key_is_locked_until_an_agent_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    free = keys.ensure_key(tmp_path / "free")
    path, typed = tmp_path / "locked", tmp_path / "typed"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", path], check=True, timeout=PATIENCE_S)
    locked = keys.ensure_key(path)
    assert not keys.why_unusable(free, place())
    assert keys.why_unusable(locked, place()).id == "key.has-passphrase"
    assert not keys.why_unusable(locked, replace(place(), agent="/agent"))  # ssh asks another one than we would
    typed.write_text("#!/bin/sh\necho secret\n")
    typed.chmod(0o700)
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", tmp_path / "agent"], stdout=subprocess.DEVNULL)
    try:
        wait_for((tmp_path / "agent").exists, "the agent")
        env = {**os.environ, "SSH_ASKPASS": str(typed), "SSH_ASKPASS_REQUIRE": "force"}
        for own, is_locked in ((free, True), (locked, False)):
            subprocess.run(["ssh-add", "-q", own.path], env=env, check=True, timeout=PATIENCE_S)
            assert bool(keys.why_unusable(locked, place())) is is_locked
    finally:
        agent.kill()
        agent.wait(PATIENCE_S)


def test_where_ssh_would_go_is_where_we_go(tmp_path: Path):
    config = tmp_path / "config"
    config.write_text(
        "Host cluster\n HostName gpu.edu\n Port 2200\n User someone\n"
        f' UserKnownHostsFile "{tmp_path}/with space/known"\n IdentityAgent SSH_AUTH_SOCK\n'
        "Host far\n HostName gpu.edu\n ProxyJump door\n HostKeyAlias gpu\n IdentityAgent /agent\n"
    )
    near = keys.endpoint(Remote(path="/x", host="cluster", ssh_config=config, known_hosts=Path("/ours")))
    assert (near.host, near.port, near.user, near.jump, near.agent) == ("gpu.edu", 2200, "someone", None, None)
    assert near.known_hosts[0] == Path("/ours")
    assert tmp_path / "with space" / "known" in near.known_hosts
    far = keys.endpoint(Remote(path="/x", host="far", user="me", port=7, ssh_config=config))
    assert (far.user, far.port, far.jump, far.pinned_name, far.agent) == ("me", 7, "door", "gpu", "/agent")


def test_the_key_is_added_once_whatever_was_there(tmp_path: Path):
    """The script that runs over there, run here by sh, dash and a home of its own."""
    line = f"{HOST_KEY.kind} {HOST_KEY.blob} me@laptop"
    for before in (None, "", "ssh-rsa AAAA other", "ssh-rsa AAAA other\n", f"{HOST_KEY.kind} {HOST_KEY.blob} older"):
        home = tmp_path / f"home {len(list(tmp_path.iterdir()))}"
        home.mkdir()
        if before is not None:
            (home / ".ssh").mkdir(mode=0o755)
            (home / ".ssh" / "authorized_keys").write_text(before)
        for _ in range(2):
            subprocess.run(
                ["sh", "-c", f"exec sh -c '{keys._INSTALL_SCRIPT}'"],
                input=line.encode() + b"\n", env={**os.environ, "HOME": str(home)}, check=True, timeout=PATIENCE_S,
            )  # fmt: skip
        lines = (home / ".ssh" / "authorized_keys").read_text().splitlines()
        assert sum(HOST_KEY.blob in one for one in lines) == 1
        assert ("ssh-rsa AAAA other" in lines) == bool(before and "other" in before)
        assert stat.S_IMODE((home / ".ssh").stat().st_mode) == 0o700
        assert stat.S_IMODE((home / ".ssh" / "authorized_keys").stat().st_mode) == 0o600


def answer(home: Path, path: str) -> str:
    """What a shell says to the survey. Its login PATH is this home's `bin`."""
    return subprocess.run(
        ["sh", "-c", survey.question(path)], capture_output=True, text=True, timeout=PATIENCE_S, check=True,
        env={"HOME": str(home), "PATH": f"{home / 'bin'}:/usr/bin:/bin", "SHELL": "/bin/sh"}, stdin=subprocess.DEVNULL,
    ).stdout  # fmt: skip


def make_program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_survey_follows_the_runs_own_words(tmp_path: Path):
    run = tmp_path / "run"
    run.mkdir()
    theirs = make_program(tmp_path / "env" / "bin" / "syncd")
    make_program(tmp_path / ".venv" / "bin" / "syncd")
    # Where sh is dash, its `echo` would break the line, and nothing of the run be known.
    config = {"collaboration": {"shared_dir": "../group/shared"}, "note": "first\nsecond\tthird\\c"}
    (run / "run.json").write_text(
        json.dumps({"python": str(theirs.parent / "python"), "folder": str(run), "config": config})
    )
    found = survey.findings(answer(tmp_path, str(run)), str(run))
    assert found.shared == str(tmp_path / "group" / "shared")
    assert found.command == str(theirs)


def test_a_folder_with_other_things_is_no_runs(tmp_path: Path):
    """`watch` would wait there for policies that never come. Into an empty one a run may write its first."""
    for made in ("project/runs/mt10/run.json", "early/shared/x", "empty/.hidden"):
        make_program(tmp_path / made)
    for asked in ("project/runs/mt10", "early", "empty"):
        survey.findings(answer(tmp_path, asked), asked)
    for asked in ("project", "project/runs"):
        with pytest.raises(RemoteError) as raised:
            survey.findings(answer(tmp_path, asked), asked)
        assert raised.value.id == "survey.no-run"


def give_to_stranger(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


@as_root
@pytest.mark.parametrize("asked", ["run", "run/shared"])
def test_the_owner_of_the_shared_folder_names_no_program(tmp_path: Path, asked: str):
    """Neither by a run.json nor by an environment at a place that is looked into."""
    home, theirs = tmp_path / "home", tmp_path / "theirs"
    (theirs / "run" / "shared" / "v1").mkdir(parents=True)
    programs = [make_program(theirs / "env" / "bin" / "syncd")]
    for folder in (theirs, theirs / "run", theirs / "run" / "shared"):
        programs.append(make_program(folder / ".venv" / "bin" / "syncd"))
        (folder / "run.json").write_text(json.dumps({"python": str(programs[0].with_name("python")), "config": {}}))
    for program in programs:
        shutil.copy(program, program.with_name("viewer"))
    give_to_stranger(theirs)
    path = str(theirs / asked)
    assert str(theirs / "env") not in answer(home, path)
    found = survey.findings(answer(home, path), path)
    assert (found.shared, found.command) == (str(theirs / "run" / "shared"), None)
    own = make_program(home / "anchorleg" / "bin" / "syncd")
    assert survey.findings(answer(home, path), path).command == str(own)
    assert "neither on PATH" in become(home, path).stderr


@as_root
def test_a_place_of_ones_own_counts_as_what_it_really_is(tmp_path: Path):
    """A stranger's link to it can lead elsewhere tomorrow."""
    home, theirs = tmp_path / "home", tmp_path / "theirs"
    program = make_program(home / "project" / "env" / "bin" / "syncd")
    (theirs / ".venv").mkdir(parents=True)
    (theirs / ".venv" / "bin").symlink_to(program.parent)
    give_to_stranger(theirs)
    assert survey.findings(answer(home, str(theirs)), str(theirs)).command == str(program)
    os.chown(program, STRANGER, STRANGER)
    assert survey.findings(answer(home, str(theirs)), str(theirs)).command is None
    os.chown(program, 0, 0)
    os.chown(program.parent, STRANGER, STRANGER)
    assert survey.findings(answer(home, str(theirs)), str(theirs)).command is None


@given(st.text(max_size=200))
def test_no_answer_breaks_the_survey(text: str):
    for words in (text, f"anchorleg-survey:home:/h\nanchorleg-survey:path:/p\nanchorleg-survey:run:{text}"):
        with contextlib.suppress(RemoteError):
            survey.findings(words, "/p")


def become(home: Path, path: str) -> subprocess.CompletedProcess[str]:
    """What a shell does with the line that becomes a `viewer` over there. Its PATH is this home's `bin`."""
    return subprocess.run(
        ["sh", "-c", survey.program_line("viewer", path, ["--stdio", "a b's"])], capture_output=True, text=True,
        env={"HOME": str(home), "PATH": f"{home / 'bin'}:/usr/bin:/bin", "SHELL": "/bin/false"},
        timeout=PATIENCE_S, check=False,
    )  # fmt: skip


def test_a_program_over_there_is_that_of_the_run_or_on_its_path_or_at_a_usual_place(tmp_path: Path) -> None:
    home = tmp_path / "it's home"
    places = [home / "own" / "bin", home / "bin", home / "anchorleg" / "bin"]
    run = home / "runs" / "mt10"
    run.mkdir(parents=True)
    (run / "run.json").write_text(f'{{"python": "{places[0]}/python"}}')
    for place in places:
        place.mkdir(parents=True)
        (place / "viewer").write_text(f'#!/bin/sh\necho "{place}" "$@"\n')
        (place / "viewer").chmod(0o755)

    for place, path in zip(places, ("runs/mt10", "mt10", str(run)), strict=True):
        assert become(home, path).stdout == f"{place} --stdio a b's\n"
        (place / "viewer").unlink()
    done = become(home, "mt10")
    assert (done.returncode, done.stdout) == (127, "")
    assert "neither on PATH nor at a usual place" in done.stderr
