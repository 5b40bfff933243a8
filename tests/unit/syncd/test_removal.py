"""A folder that a stranger filled goes, whatever its modes, its depth and its names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from as_user import as_ordinary_user, ordinary_folder

from syncd.shared.removal import remove_tree

#: Far beyond Python's recursion limit, and what the kernel takes as one path.
DEPTH = 1_200


def with_closed_folders(folder: Path) -> None:
    for mode in (0o555, 0o000, 0o111, 0o444):
        inner = folder / f"{mode:o}" / "inner"
        inner.mkdir(parents=True)
        (inner / "file").write_bytes(b"x")
        inner.chmod(mode)
        inner.parent.chmod(mode)
    folder.chmod(0o500)


def a_deep_one(folder: Path) -> None:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d" * 200, dir_fd=here)
        deeper = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)


def a_wide_one(folder: Path) -> None:
    for number in range(300):
        (folder / f"{number}" / "a" / "b").mkdir(parents=True)
        (folder / f"{number}" / "file").write_bytes(b"x")


def odd_ones(folder: Path) -> None:
    (folder / "new\nline").mkdir()
    (folder / os.fsdecode(b"\xff\xfe")).mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to(folder)
    (folder / "new\nline" / "gone").symlink_to("nowhere")


@pytest.mark.parametrize("fill", [with_closed_folders, a_deep_one, a_wide_one, odd_ones])
def test_it_goes(fill: Callable[[Path], None]) -> None:
    with ordinary_folder() as above:

        def work() -> None:
            folder = above / "staging"
            folder.mkdir()
            fill(folder)
            remove_tree(folder)
            assert not os.path.lexists(folder)

        as_ordinary_user(work)


def test_a_link_goes_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_bytes(b"x")
    folder = tmp_path / "staging"
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "link").symlink_to(kept)
    remove_tree(folder)
    assert not folder.exists()
    assert (kept / "file").read_bytes() == b"x"
    remove_tree(folder)  # none there is no error
    (tmp_path / "itself").symlink_to(kept)
    with pytest.raises(OSError, match="itself"):
        remove_tree(tmp_path / "itself")
    assert (kept / "file").exists()


def test_what_belongs_to_another_account_is_told_and_the_rest_goes() -> None:
    if os.geteuid() != 0:
        pytest.skip("a file of another account needs root")
    with ordinary_folder() as above:
        theirs = above / "staging" / "deep" / "theirs"
        theirs.mkdir(parents=True)
        (theirs / "file").write_bytes(b"x")
        (above / "staging" / "ours").write_bytes(b"x")
        for path in (theirs.parent, theirs.parent.parent):
            os.chown(path, 65_534, 65_534)

        def work() -> None:
            with pytest.raises(PermissionError):
                remove_tree(above / "staging")
            assert [path.name for path in above.rglob("*") if path.is_file()] == ["file"]

        as_ordinary_user(work)
