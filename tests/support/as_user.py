"""Work done as an ordinary user: root may do what a folder's mode forbids, and would hide a fault."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

#: `nobody` of nearly every system; it need not have a name.
UID = 65_534


@contextmanager
def ordinary_folder() -> Iterator[Path]:
    """A folder that the ordinary user owns; gone at the end, whatever is in it."""
    folder = Path(tempfile.mkdtemp(prefix="anchorleg-user-"))
    try:
        if os.geteuid() == 0:
            os.chown(folder, UID, UID)
        yield folder
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=False, capture_output=True)
        shutil.rmtree(folder, ignore_errors=True)


def as_ordinary_user(work: Callable[[], object]) -> None:
    """Call `work` in a child process that is no root. Errors: AssertionError with the child's traceback."""
    as_account(UID, UID, (), work)


def as_account(uid: int, gid: int, groups: Sequence[int], work: Callable[[], object]) -> None:
    """Call `work` in a child process of that account, where we are root; else as we are.

    Errors: AssertionError with the child's traceback.

    What `work` imports must have been imported before: the account may not be able to read it.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setgroups(groups)
                os.setgid(gid)
                os.setuid(uid)
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - a child of pytest must end here, and say why
            os.write(write, traceback.format_exc().encode()[:60_000])
        finally:
            os._exit(code)
    os.close(write)
    with open(read, "rb") as words:
        said = words.read().decode()
    _, status = os.waitpid(child, 0)
    assert status == 0, said or f"the child ended with status {status}"
