"""The choice of the way: the best that there is, and never in silence."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from syncd.access.settings import Settings
from syncd.commands.way import Way
from syncd.errors import ConfigError
from syncd.remote import Remote
from syncd.transports import factory
from syncd.transports.factory import open_transport
from syncd.transports.openssh import WITHOUT_US, explain

FAR = Remote(host="cluster", path="/shared")
NEAR = Remote(path="/shared")


@pytest.mark.parametrize(
    ("remote", "programs", "name"),
    [(FAR, {"ssh", "rsync"}, "openssh"), (FAR, {"rsync"}, "paramiko"), (NEAR, {"ssh"}, "local")],
)
def test_the_best_way_is_taken_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: Remote, programs: set[str], name: str
) -> None:
    for program in programs:
        (tmp_path / program).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(factory, "_opened", lambda _remote, which, *_: SimpleNamespace(name=which))
    transport = open_transport(remote, client="anna")
    assert transport.name == name
    assert transport.chosen_because


@pytest.mark.parametrize(("remote", "which"), [(FAR, "local"), (NEAR, "openssh")])
def test_a_way_that_cannot_lead_there_is_refused(remote: Remote, which: str) -> None:
    with pytest.raises(ConfigError, match=f"--transport {which}"):
        open_transport(remote, which, client="anna")  # type: ignore[arg-type]


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
def test_where_our_server_cannot_be_started_rsync_is_named(code: int, said: str, is_one: bool) -> None:
    assert (WITHOUT_US in str(explain("cluster", code, said))) is is_one


def test_the_command_line_goes_before_what_is_stored() -> None:
    stored = Settings(transport="paramiko", bwlimit=500)
    assert Way().over(stored) == stored
    assert Way(transport="auto", bwlimit=0).over(stored) == Settings()
    with pytest.raises(ConfigError, match="16 KiB a second at least"):
        Way(bwlimit=15).over(stored)
