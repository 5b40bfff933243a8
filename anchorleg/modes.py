"""What is made in a group's folder (setgid) is the group's to read, whatever the umask says.

Elsewhere the umask decides. Standard library only: programs of one's own show themselves in a shared folder, too.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from anchorleg.files import fsync_folder

#: Of a group's folder and its files: members of the group read, others see nothing.
_FOLDER_MODE = 0o2750
_FILE_MODE = 0o640


def make_shared_folder(folder: Path) -> None:
    """Make `folder` and what is missing above it, durably.

    Inside a setgid folder new ones are 2750, whatever the umask says; elsewhere the umask decides. Errors: OSError.
    """
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        try:
            os.mkdir(new)
        except FileExistsError:
            continue  # another writer was quicker
        if is_a_groups(new.parent):
            os.chmod(new, _FOLDER_MODE)
        fsync_folder(new.parent)


def file_mode(folder: Path) -> int | None:
    """The mode of new files in `folder`: 0640 in a group's (setgid) folder, else None: as the umask says. Errors:
    OSError.
    """
    return _FILE_MODE if is_a_groups(folder) else None


def is_a_groups(folder: Path) -> bool:
    """Whether `folder` is setgid: what is made in it belongs to its group. Errors: OSError."""
    return bool(os.stat(folder).st_mode & stat.S_ISGID)
