"""The choice of the way: the best that works, rsync as the last one unless it is switched off, and never in silence."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from syncd.access.settings import Settings
from syncd.commands.way import Way
from syncd.errors import (
    ConfigError,
    HostKeyError,
    LoginRefusedError,
    NoServerError,
    RemoteError,
    SecondFactorError,
    SyncError,
    UnreachableError,
)
from syncd.remote import Remote
from syncd.transports import factory, rsync
from syncd.transports.factory import open_transport
from syncd.transports.openssh import explain

FAR = Remote(host="cluster", path="/shared")
NEAR = Remote(path="/shared")


class Ways:
    """What each transport does when it is opened: an error, or nothing."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails: dict[str, SyncError] = {}
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.probe: SyncError | None = None
        self._folder = folder
        self.install("ssh", "rsync")
        monkeypatch.setattr(factory, "_opened", self._open)
        monkeypatch.setattr(rsync, "RsyncTransport", lambda *words: self._open(words[0], "rsync", *words[1:]))
        monkeypatch.setenv("PATH", str(folder))

    def install(self, *programs: str) -> None:
        """This machine has these, and no others."""
        for path in self._folder.iterdir():
            path.unlink()
        for name in programs:
            (self._folder / name).touch(0o755)

    def _open(self, remote: Remote, which: str, client: str, bwlimit: int) -> SimpleNamespace:
        self.opened.append(which)
        if which in self.fails:
            raise self.fails[which]
        return SimpleNamespace(name=which, better=None, close=lambda: self.closed.append(which), probe=self._probe)

    def _probe(self) -> None:
        if self.probe is not None:
            raise self.probe


@pytest.fixture
def ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ways:
    return Ways(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("remote", "programs", "name", "why"),
    [
        (FAR, {"ssh", "rsync"}, "openssh", "ssh is installed here"),
        (FAR, {"rsync"}, "paramiko", "there is no ssh here"),
        (NEAR, {"ssh"}, "local", "this machine has the folder"),
    ],
)
def test_the_best_way_is_taken_and_says_why(ways, remote, programs, name, why):
    ways.install(*programs)
    transport = open_transport(remote, client="anna")
    assert (transport.name, transport.chosen_because, transport.better) == (name, why, None)


def test_without_our_server_over_there_rsync_does_and_says_so(ways):
    ways.fails["openssh"] = NoServerError("cluster has no syncd")
    transport = open_transport(FAR, client="anna")
    assert (transport.name, transport.chosen_because) == ("rsync", "cluster has no syncd")
    with pytest.raises(NoServerError):
        transport.better()
    ways.fails.clear()
    better = transport.better()
    assert (better.name, better.chosen_because, better.better) == ("openssh", "ssh is installed here", None)
    assert (ways.opened, ways.closed) == (["openssh", "rsync", "openssh", "openssh"], [])


@pytest.mark.parametrize("programs", [{"ssh"}, {"ssh", "rsync"}])
def test_rsync_is_not_used_where_it_is_missing_or_switched_off(ways, programs):
    ways.install(*programs)
    ways.fails["openssh"] = NoServerError("cluster has no syncd")
    with pytest.raises(NoServerError):
        open_transport(FAR, client="anna", rsync=programs == {"ssh"})
    assert ways.opened == ["openssh"]


@pytest.mark.parametrize("kind", [UnreachableError, HostKeyError, LoginRefusedError, RemoteError, ConfigError])
def test_nothing_else_is_a_reason_for_a_second_login(ways, kind):
    ways.fails["openssh"] = kind("no")
    with pytest.raises(kind):
        open_transport(FAR, client="anna")
    assert ways.opened == ["openssh"]


@pytest.mark.parametrize("kind", [RemoteError, SecondFactorError, UnreachableError])
def test_where_rsync_cannot_either_both_are_told(ways, kind):
    ways.fails["openssh"] = NoServerError("cluster has no syncd")
    ways.probe = kind("cluster has no rsync")
    with pytest.raises(RemoteError, match="no syncd; and by rsync: cluster has no rsync"):
        open_transport(FAR, client="anna")
    assert ways.closed == ["rsync"]


@pytest.mark.parametrize(
    ("code", "said", "is_one"),
    [
        (127, "bash: syncd: command not found", True),
        (126, "syncd: Permission denied", True),
        (1, "/usr/bin/rrsync error: SSH_ORIGINAL_COMMAND does not run rsync.", True),
        (126, "syncd gate: this key may run `syncd serve` only, not 'ls'", False),
        (2, "syncd: 'a b' is no contributor name", False),
        (255, "Permission denied (publickey).", False),
        (143, "", False),
    ],
)
def test_what_means_that_there_is_no_server(code, said, is_one):
    assert isinstance(explain("cluster", code, said), NoServerError) is is_one


def test_the_command_line_goes_before_what_is_stored():
    stored = Settings(rsync=False, bwlimit=500)
    assert Way().over(stored) == stored
    assert Way(rsync=True, bwlimit=0).over(stored) == Settings()
    with pytest.raises(ConfigError, match="give one of them"):
        Way(transport="rsync").over(stored)
    with pytest.raises(ConfigError, match="16 KiB a second at least"):
        Way(bwlimit=15).over(stored)
    with pytest.raises(ConfigError, match="switched off"):
        open_transport(FAR, "rsync", client="anna", rsync=False)
