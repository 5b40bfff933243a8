"""Where an account's own files lie, on Linux and on macOS."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from anchorleg.places import account_name, base_folder, home_folder, own_folder, runs_folder, user_path

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


def test_an_account_without_a_name_and_a_home_folder_is_no_error(monkeypatch, tmp_path):
    def unknown(_who):
        raise KeyError

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(pwd, "getpwnam", unknown)
    assert account_name() == str(os.getuid())
    assert [user_path(word) for word in ("~/x", "~nobody/x", tmp_path)] == [Path("~/x"), Path("~nobody/x"), tmp_path]
    assert list(runs_folder({}).glob("*")) == []
    with pytest.raises(NotADirectoryError):
        home_folder({}).joinpath("x").mkdir(parents=True)
