"""The choice of the way: the best that there is, and never in silence."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from refused import refused

from syncd.access.settings import Settings
from syncd.commands.way import Way
from syncd.remote import Remote
from syncd.transports import factory
from syncd.transports.factory import open_transport

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


@pytest.mark.parametrize(
    ("remote", "which", "name"),
    [(FAR, "local", "transport.to-another-machine"), (NEAR, "openssh", "transport.to-this-machine")],
)
def test_a_way_that_cannot_lead_there_is_refused(remote: Remote, which: str, name: str) -> None:
    with refused(name, transport=which):
        open_transport(remote, which, client="anna")  # type: ignore[arg-type]


def test_the_command_line_goes_before_what_is_stored() -> None:
    stored = Settings(transport="paramiko", bwlimit=500)
    assert Way().over(stored) == stored
    assert Way(transport="auto", bwlimit=0).over(stored) == Settings()
    with refused("transport.limit-too-low", least=16):
        Way(bwlimit=15).over(stored)
