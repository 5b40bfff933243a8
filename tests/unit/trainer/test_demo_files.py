"""Folders of demonstrations that somebody else made: files of the folder itself are read, no link and no pipe."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from refused import refused

from trainer.demos.lerobot import LerobotInfo, licence_in, own


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("license: hunter2")
    (tmp_path / "set" / "meta").mkdir(parents=True)
    return tmp_path / "set"


def link(path: Path) -> None:
    path.symlink_to("../token" if path.parent.name == "set" else "../../token")


@pytest.fixture(params=[link, os.mkfifo], ids=["link", "pipe"])
def make(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    found: Callable[[Path], None] = request.param
    return found


@pytest.mark.parametrize("name", ["LICENSE", "README.md"])
def test_no_licence(folder: Path, make: Callable[[Path], None], name: str) -> None:
    make(folder / name)
    assert licence_in(folder) is None


def test_no_part_of_a_data_set(folder: Path, make: Callable[[Path], None]) -> None:
    make(folder / "meta" / "info.json")
    with refused("lerobot.link"):
        LerobotInfo.read(folder)
    (folder / "data" / "chunk-000").mkdir(parents=True)
    make(folder / "data" / "chunk-000" / "file-000.parquet")
    with refused("lerobot.link"):
        own(folder, "data/chunk-000/file-000.parquet")


def test_no_folder_of_another_place(folder: Path) -> None:
    (folder.parent / "file-000.parquet").touch()
    (folder / "data").mkdir()
    (folder / "data" / "chunk-000").symlink_to(folder.parent)
    with refused("lerobot.link"):
        own(folder, "data/chunk-000/file-000.parquet")
