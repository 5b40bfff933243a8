"""`syncd setup` typed in a terminal against a real sshd: an account with a password, made for the test.

Such an account needs root; without it the test of the password is skipped by name, the others run all the same.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from accounts import Account, missing_account_parts, throw_away_accounts
from daemons import PATIENCE_S, WORK_S
from needs import need
from policies import publish_one
from sshd import Laptop, Sshd, make_key
from typist import Typist

from syncd import store
from syncd.remote import Settings

SYNCD = Path(sys.executable).parent / "syncd"
PASSPHRASE = "correct horse battery staple"


@dataclass
class Newcomer:
    """A new laptop: an empty home, and an `ssh` that looks into it."""

    home: Path
    env: dict[str, str]

    def type(self, *words: object) -> Typist:
        return Typist([str(SYNCD), *map(str, words)], self.env, str(self.home))

    def run(self, *words: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(SYNCD), *map(str, words)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, env=self.env, cwd=self.home,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip

    def settings(self) -> Settings:
        path = self.home / ".config" / "anchorleg" / "syncd.json"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        return Settings.model_validate_json(path.read_bytes())


@pytest.fixture
def newcomer(tmp_path: Path) -> Newcomer:
    home = tmp_path / "laptop home"  # with a space: paths are quoted everywhere
    (home / "bin").mkdir(parents=True)
    (home / ".ssh").mkdir(mode=0o700)
    known = home / ".ssh" / "known_hosts"
    (home / ".ssh" / "config").write_text(f'UserKnownHostsFile "{known}"\n')
    # ssh asks the password database for its home; these people share the account that runs the tests.
    ssh = home / "bin" / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F "$HOME/.ssh/config" "$@"\n')
    ssh.chmod(0o755)
    dropped = {"SSH_AUTH_SOCK", "XDG_CONFIG_HOME", "XDG_STATE_HOME"}
    env = {name: value for name, value in os.environ.items() if name not in dropped and "SYNC_CLUSTER_" not in name}
    return Newcomer(home, {**env, "HOME": str(home), "PATH": f"{home / 'bin'}:{env['PATH']}"})


@pytest.fixture
def account() -> Iterator[Account]:
    """A user of this machine for the length of one test."""
    need("accounts of a test's own", missing_account_parts())
    with throw_away_accounts("new", env=os.environ) as (_, (made,)):
        yield made


@pytest.fixture
def with_password(new_sshd: Callable[..., Sshd]) -> Sshd:
    return new_sshd(
        PasswordAuthentication="yes", AuthorizedKeysFile=".ssh/authorized_keys", StrictModes="yes", PermitRootLogin="no"
    )


def run_folder_of(account: Account) -> Path:
    """A run folder with a policy in it, and a `syncd` where people have one."""
    run = account.home / "project" / "runs" / "mt10"
    publish_one(store.Shared(run / "shared"), 1, 1)
    programs = account.home / "project" / ".venv" / "bin"
    programs.mkdir(parents=True)
    shutil.copy(account.syncd(), programs)
    subprocess.run(["chown", "-R", account.name, account.home], check=True, timeout=PATIENCE_S)
    return run


@pytest.mark.long
def test_from_an_empty_home_to_a_mirror_with_one_password(
    newcomer: Newcomer, account: Account, with_password: Sshd, tmp_path: Path
):
    run, password = run_folder_of(account), account.password()
    authorized = account.home / ".ssh" / "authorized_keys"
    authorized.parent.mkdir(mode=0o755)
    authorized.write_text("ssh-ed25519 AAAAsomebody-else else")  # without a newline at its end
    subprocess.run(["chown", "-R", account.name, authorized.parent], check=True, timeout=PATIENCE_S)
    words = ("setup", f"{account.name}@127.0.0.1:project/runs/mt10", "--port", with_password.port)
    person = newcomer.type(*words)
    try:
        person.wait_for("Is it correct?")
        assert with_password.fingerprint() in person.seen
        person.type("y")
        person.wait_for(f"{account.name}@127.0.0.1's password:")
        person.type(password)
        assert person.end() == 0, person.seen
    finally:
        person.close()
    assert password not in person.seen
    for step in ("key", "host key", "login", "folder", "syncd there", "connection", "stored"):
        assert re.search(rf"^✓ {step}\b", person.seen, re.MULTILINE), person.seen
    assert "1 policy is there" in person.seen
    assert max(map(len, re.split(r"\r?\n", person.seen))) < 200
    lines = authorized.read_text().splitlines()
    assert len(lines) == 2
    assert lines[1] == (newcomer.home / ".ssh" / "id_ed25519.pub").read_text().strip()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (authorized, authorized.parent)] == [0o600, 0o700]
    settings = newcomer.settings()
    assert settings.remote is not None
    assert settings.remote.path == str(run / "shared")
    assert settings.remote.command == str(account.home / "project" / ".venv" / "bin" / "syncd")
    assert password not in "".join(
        path.read_text() for path in newcomer.home.rglob("*") if path.is_file() and "ssh" not in path.name
    )

    logins = with_password.logins()
    again = newcomer.run(*words)  # nobody is asked anything any more
    assert again.returncode == 0, again.stderr
    assert with_password.logins() == logins + 2
    assert authorized.read_text().splitlines() == lines
    assert newcomer.settings() == settings
    pulled = newcomer.run("pull")
    assert pulled.returncode == 0, pulled.stderr
    assert list((newcomer.home / "shared_weights" / "v1" / "runs").glob("*/0/LATEST.json"))


@pytest.mark.long
def test_where_there_is_no_syncd_the_line_that_it_advises_brings_it_there(
    newcomer: Newcomer, account: Account, with_password: Sshd
):
    """`pip` brings the base's dependencies from wherever this machine's pip is told to look."""
    make_key(newcomer.home / ".ssh" / "id_ed25519", "laptop")
    where = account.home / ".ssh"
    where.mkdir(mode=0o700)
    shutil.copy(newcomer.home / ".ssh" / "id_ed25519.pub", where / "authorized_keys")
    run = account.home / "project" / "runs" / "mt10"
    publish_one(store.Shared(run / "shared"), 1, 1)
    subprocess.run(["chown", "-R", account.name, account.home], check=True, timeout=PATIENCE_S)
    config = newcomer.home / ".ssh" / "config"
    known = newcomer.home / ".ssh" / "known_hosts"
    key = newcomer.home / ".ssh" / "id_ed25519"
    config.write_text(
        f"Host cluster\n  HostName 127.0.0.1\n  Port {with_password.port}\n  User {account.opened()}\n"
        f'  IdentityFile "{key}"\n  UserKnownHostsFile "{known}"\n'
    )
    known.write_text(with_password.host_key_line + "\n")
    words = ("setup", "cluster:project/runs/mt10")
    refused = newcomer.run(*words)
    assert refused.returncode == 6, refused.stderr
    line = re.search(r"(rsync -a .*') \(Python", refused.stderr)
    assert line is not None, refused.stderr
    installed = subprocess.run(
        ["sh", "-c", line[1]], env=newcomer.env, cwd=newcomer.home, capture_output=True, text=True, timeout=WORK_S,
        check=False,
    )  # fmt: skip
    assert installed.returncode == 0, installed.stderr
    done = newcomer.run(*words)
    assert done.returncode == 0, done.stderr
    assert newcomer.run("pull").returncode == 0


def refused(newcomer: Newcomer, words: Sequence[object], *, is_typed: bool) -> str:
    """What a command said that was not let in: in a terminal, or in a pipe."""
    if is_typed:
        person = newcomer.type(*words)
        try:
            assert person.end() == 5, person.seen
        finally:
            person.close()
        seen = person.seen
    else:
        done = newcomer.run(*words)
        assert done.returncode == 5, done.stderr
        seen = done.stdout + done.stderr
    return seen


@pytest.mark.parametrize("is_typed", [True, False], ids=["typed", "in a pipe"])
def test_a_key_that_nobody_unlocks_is_named_before_a_password_is_asked_for(
    newcomer: Newcomer, sshd: Sshd, is_typed: bool
):
    """The site would take it: to install it once more would help nobody."""
    key = newcomer.home / ".ssh" / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", PASSPHRASE, "-f", key], check=True, timeout=PATIENCE_S)
    sshd.add_key(key.with_name("id_ed25519.pub").read_text().strip())
    words = ("setup", f"{sshd.user}@127.0.0.1:/run", "--port", sshd.port, "--yes-host-key", sshd.fingerprint())
    seen = refused(newcomer, words, is_typed=is_typed)
    assert "[key.has-passphrase]" in seen
    assert f"`ssh-add '{key}'`" in seen
    assert "assword" not in seen
    assert "does not" not in seen


def test_where_a_second_factor_is_asked_for_no_key_is_installed(newcomer: Newcomer, new_sshd: Callable[..., Sshd]):
    """The site has the key: one that is installed once more would be refused all the same."""
    sshd = new_sshd(AuthenticationMethods="publickey,keyboard-interactive", KbdInteractiveAuthentication="yes")
    sshd.add_key(make_key(newcomer.home / ".ssh" / "id_ed25519", "laptop"))
    words = ("setup", f"{sshd.user}@127.0.0.1:/run", "--port", sshd.port, "--yes-host-key", sshd.fingerprint())
    seen = refused(newcomer, words, is_typed=True)
    assert "[login.second-factor]" in seen
    assert "does not" not in seen
    assert "refuse" not in seen


def test_a_site_without_passwords_is_said_and_nothing_is_asked(newcomer: Newcomer, sshd: Sshd):
    words = ("setup", f"{sshd.user}@127.0.0.1:/run", "--port", sshd.port, "--yes-host-key", sshd.fingerprint())
    seen = refused(newcomer, words, is_typed=True)
    assert "[login.no-password]" in seen
    assert "password:" not in seen


@pytest.mark.long
def test_without_a_terminal_it_says_what_is_missing_and_never_hangs(newcomer: Newcomer, sshd: Sshd, tmp_path: Path):
    place = f"{sshd.user}@127.0.0.1:{tmp_path}"
    unknown = newcomer.run("setup", place, "--port", sshd.port)
    assert unknown.returncode == 2
    assert "[host.not-confirmed]" in unknown.stderr
    another = newcomer.run("setup", place, "--port", sshd.port, "--yes-host-key", "SHA256:" + "A" * 43)
    assert another.returncode == 4
    assert "[host.other-than-given]" in another.stderr
    refused = newcomer.run("setup", place, "--port", sshd.port, "--yes-host-key", sshd.fingerprint())
    assert refused.returncode == 5
    assert "[login.key-unknown]" in refused.stderr
    assert (sshd.logins(), sshd.refusals()) == (0, 1)
    sshd.add_key((newcomer.home / ".ssh" / "id_ed25519.pub").read_text())
    (tmp_path / "empty").mkdir()
    for path, name in ((tmp_path / "nowhere", "survey.no-folder"), (tmp_path / "empty", "setup.no-syncd-there")):
        done = newcomer.run("setup", f"{sshd.user}@127.0.0.1:{path}", "--port", sshd.port)
        if "syncd there" not in done.stdout:  # a syncd on the account's own PATH is found, and right
            assert done.returncode == 6, done.stderr
            assert f"[{name}]" in done.stderr
        assert done.stderr.count("\n") <= 1
    assert not list(newcomer.home.rglob("syncd.json")) or "syncd there" in done.stdout


@pytest.mark.long
def test_a_friend_with_a_restricted_key(newcomer: Newcomer, sshd: Sshd, tmp_path: Path):
    shared = store.Shared(tmp_path / "run" / "shared")
    publish_one(shared, 1, 1)
    owner: Laptop = sshd.new_client("owner")
    place = f"{sshd.user}@127.0.0.1:{tmp_path / 'run'}"
    words = ("setup", place, "--port", sshd.port, "--yes-host-key", sshd.fingerprint(), "--remote-command", SYNCD)
    done = newcomer.run(*words, "--key", owner.key)
    assert done.returncode == 0, done.stderr
    friend_key = tmp_path / "friend_key"
    make_key(friend_key, "ben's laptop")
    printed = newcomer.run("setup", "--friend", "ben", "--friend-key", f"{friend_key}.pub")
    assert printed.returncode == 0, printed.stderr
    (line,) = printed.stdout.splitlines()
    assert line.startswith("restrict,command=")
    assert shutil.which("ssh-keygen")
    with open(sshd.authorized_keys, "a", encoding="utf-8") as file:
        file.write(line + "\n")
    ben = Newcomer(newcomer.home.parent / "ben", {**newcomer.env, "HOME": str(newcomer.home.parent / "ben")})
    (ben.home / ".ssh").mkdir(parents=True)
    (ben.home / ".ssh" / "config").touch()
    done = ben.run(
        "setup", f"{place}/shared", "--port", sshd.port, "--yes-host-key", sshd.fingerprint(), "--key", friend_key
    )
    assert done.returncode == 0, done.stderr
    assert "restricted" in done.stdout
    assert "your contributions are called ben" in done.stdout
    assert ben.settings().name == "ben"
    pulled = ben.run("pull")
    assert pulled.returncode == 0, pulled.stderr
    assert ben.run("pull", "--rsync").returncode == 6
    assert json.loads((ben.home / ".config" / "anchorleg" / "syncd.json").read_text())["remote"]["host"] == "127.0.0.1"
    printed = newcomer.run("setup", "--friend", "ben", "--friend-key", friend_key)
    assert "[friend.key-private]" in printed.stderr
    granted = newcomer.run("setup", "--friend", "ben", "--friend-key", f"{friend_key}.pub", "--friend-checkpoints")
    assert granted.stdout == line.replace(f"{shared.path}", f"{shared.path} --checkpoints") + "\n"


@pytest.mark.long
def test_no_line_for_a_friend_where_a_client_may_choose_what_is_run(newcomer: Newcomer, sshd: Sshd, tmp_path: Path):
    """Whatever forces a command: bash reads the file that BASH_ENV names before it runs one."""
    (tmp_path / "run" / "shared" / "v1").mkdir(parents=True)
    owner: Laptop = sshd.new_client("owner")
    place = f"{sshd.user}@127.0.0.1:{tmp_path / 'run'}"
    words = ("setup", place, "--port", sshd.port, "--yes-host-key", sshd.fingerprint(), "--remote-command", SYNCD)
    done = newcomer.run(*words, "--key", owner.key)
    assert done.returncode == 0, done.stderr
    make_key(tmp_path / "ben", "ben")
    friend = ("setup", "--friend", "ben", "--friend-key", tmp_path / "ben.pub")
    assert newcomer.run(*friend).returncode == 0
    sshd.change(AcceptEnv="BASH_* LANG")
    printed = newcomer.run(*friend)
    assert (printed.returncode, printed.stdout) == (2, "")
    assert "[friend.open-sshd]" in printed.stderr
