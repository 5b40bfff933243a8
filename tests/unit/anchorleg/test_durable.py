"""What is written is on the disk before it has its name, and its name is before anybody is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from disk_order import disk_order

from anchorleg.files import (
    append_lines,
    create_exclusive,
    fsync_tree,
    make_folder,
    publish_folder,
    remove_folder,
    write_bytes,
)
from anchorleg.job import Job

CHECKPOINTS = "slots/0/attempts/0/checkpoints"


def save(folder: Path) -> None:
    """A checkpoint with a folder in it, of a run whose folders are there."""
    (folder / CHECKPOINTS).mkdir(parents=True)

    def write(into: Path) -> None:
        (into / "weights").write_bytes(b"weights")
        (into / "more").mkdir()
        (into / "more" / "state").write_bytes(b"state")

    Job(folder, 0, 0).save_checkpoint(7, write)


def publish(folder: Path) -> None:
    (folder / "unfinished").mkdir()
    publish_folder(folder / "unfinished", folder / "7")


def remove(folder: Path) -> None:
    (folder / "7").mkdir()
    remove_folder(folder / "7")


def sync(folder: Path) -> None:
    (folder / "weights").write_bytes(b"weights")
    (folder / "more").mkdir()
    (folder / "more" / "state").write_bytes(b"state")
    (folder / "more" / "link").symlink_to("nowhere")
    fsync_tree(folder)


THE_TREE = ("weights (7)", "", "more/state (5)", "more")


@pytest.mark.parametrize(
    ("act", "wanted"),
    [
        (lambda folder: write_bytes(folder / "it", b"new!"), ["fsync .it.tmp (4)", "replace .it.tmp → it", "fsync ."]),
        (lambda folder: create_exclusive(folder / "it", b"one"), ["fsync .it.tmp (3)", "link .it.tmp → it", "fsync ."]),
        (lambda folder: append_lines(folder / "it", b"one\n", b"two\n"), ["fsync it (8)"]),
        (lambda folder: make_folder(folder / "a" / "b"), ["fsync a", "fsync ."]),
        (sync, [f"fsync {name or '.'}" for name in THE_TREE]),
        (publish, ["fsync unfinished", "rename unfinished → 7", "fsync ."]),
        (remove, ["rename 7 → .7.deleted", "fsync ."]),
        (
            save,
            [
                *(f"fsync {CHECKPOINTS}/.7.unfinished/{name}".rstrip("/") for name in THE_TREE),
                f"fsync {CHECKPOINTS}/.7.unfinished",
                f"rename {CHECKPOINTS}/.7.unfinished → {CHECKPOINTS}/7",
                f"fsync {CHECKPOINTS}",
            ],
        ),
    ],
    ids=["write_bytes", "create_exclusive", "append_lines", "make_folder", "fsync_tree", "publish_folder",
         "remove_folder", "save_checkpoint"],
)  # fmt: skip
def test_it_is_durable_before_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], object], wanted: list[str]
) -> None:
    asked = disk_order(monkeypatch, tmp_path)
    act(tmp_path)
    assert asked == wanted
