"""Removing a folder that a stranger filled: any modes, any depth, any names."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OWNERS = 0o700


def remove_tree(path: Path) -> None:
    """Remove the folder `path` and all that is in it; none there is no error. Links go, and are never followed.

    `shutil.rmtree` recurses, needs paths that the kernel takes as a whole (4,096 bytes) and stops at a folder of mode
    0555. Here each inner folder is first moved up into `path`, so nothing ever lies deeper than two, and a folder's
    mode is mended before it is read. What belongs to our account can always be removed so.

    Errors: OSError, after everything else is gone: of what stays.
    """
    try:
        with contextlib.suppress(PermissionError):  # not ours: opening it will say so
            if stat.S_ISDIR(os.lstat(path).st_mode):
                os.chmod(path, _OWNERS)
        top = os.open(path, _OPEN_FOLDER)
    except FileNotFoundError:
        return
    stays: dict[str, OSError] = {}
    try:
        while folders := [name for name in _emptied(top, stays) if name not in stays]:
            for name in folders:
                _flatten(top, name, stays)
    finally:
        os.close(top)
    if stays:
        raise next(iter(stays.values()))
    os.rmdir(path)


def _emptied(folder: int, stays: dict[str, OSError]) -> list[str]:
    """Unlink what is no folder in the open `folder`; the names of the folders in it."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if not is_folder:
            with _kept_in_mind(name, stays), contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
    return [name for name, is_folder in found if is_folder]


def _flatten(top: int, name: str, stays: dict[str, OSError]) -> None:
    """Move the folders in `name` up into `top`, and remove it and its files."""
    with _kept_in_mind(name, stays):
        folder = _opened(top, name)
        try:
            inner: dict[str, OSError] = {}
            for child in _emptied(folder, inner):
                with _kept_in_mind(child, inner):
                    os.close(_opened(folder, child))  # to move a folder one must be able to write into it
                    os.rename(child, f".{secrets.token_hex(8)}", src_dir_fd=folder, dst_dir_fd=top)
            if inner:
                raise next(iter(inner.values()))
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=top)


def _opened(above: int, name: str) -> int:
    """The folder `name` in the open folder `above`, with a mode that lets its owner empty it."""
    try:
        folder = os.open(name, _OPEN_FOLDER, dir_fd=above)
    except PermissionError:
        os.chmod(name, _OWNERS, dir_fd=above)
        folder = os.open(name, _OPEN_FOLDER, dir_fd=above)
    with contextlib.suppress(PermissionError):
        os.fchmod(folder, _OWNERS)
    return folder


@contextlib.contextmanager
def _kept_in_mind(name: str, stays: dict[str, OSError]) -> Iterator[None]:
    """Note that `name` cannot be removed, and why, and go on."""
    try:
        yield
    except OSError as error:
        stays.setdefault(name, error)
