"""Whole checkpoints on request: whose they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from policies import a_draft, tensors

from syncd.access.settings import parse_remote
from syncd.laptop.checkpoints import fetch_newest
from syncd.store import Lineage, Origin, Shared, publish, rounded


def test_those_of_runs_that_are_there_now_are_fetched_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that was begun anew in the same folder has the same attempts and steps."""
    for run in ("mine-00000000", "mine-11111111"):
        place = Shared(tmp_path).slot(run, 0)
        at = Lineage(identity="f" * 64, checkpoint=Origin(attempt=0, step=1000))
        publish(place, a_draft(place, 0, 1).model_copy(update={"lineage": at}), rounded(tensors(1)))
    into: list[Path] = []
    monkeypatch.setattr("syncd.transports.rsync.fetch_tree", lambda _remote, _path, folder, _limit: into.append(folder))
    fetch_newest(parse_remote("host:runs/mine/shared"), tmp_path, {"mine-11111111"})
    assert into == [tmp_path / "checkpoints/mine-11111111/0/0/1000"]
