"""Where an account's own files lie, on Linux and on macOS."""

from __future__ import annotations

from pathlib import Path

import pytest

from anchorleg.places import base_folder, own_folder, runs_folder

HOME = {"HOME": "/home/anna"}


@pytest.mark.parametrize(
    ("kind", "linux", "apple"),
    [
        ("state", ".local/state", ".local/state"),
        ("config", ".config", "Library/Application Support"),
        ("cache", ".cache", "Library/Caches"),
    ],
)
def test_each_kind_has_its_folder(kind, linux, apple):
    assert own_folder(kind, HOME, "linux") == Path("/home/anna") / linux / "anchorleg"
    assert own_folder(kind, HOME, "darwin") == Path("/home/anna") / apple / "anchorleg"
    for platform in ("linux", "darwin"):
        stated = {**HOME, f"XDG_{kind.upper()}_HOME": "/scratch/anna"}
        assert own_folder(kind, stated, platform) == Path("/scratch/anna/anchorleg")
        assert base_folder(kind, stated, platform) == Path("/scratch/anna")


def test_a_relative_folder_is_ignored():
    assert runs_folder({**HOME, "XDG_STATE_HOME": "here"}) == Path("/home/anna/.local/state/anchorleg/runs")
