"""The user's crontab with lines of the tests' own behind what is in it, and a `crontab` that has a table of its own."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from daemons import PATIENCE_S

#: What somebody else has in the table, in lines that nobody has; none of it is ever due.
OTHERS = b"# of-anchorlegs-tests\nMAILTO=of-anchorlegs-tests\n0 5 31 2 *  echo 100\\% of-anchorlegs-tests \t\n"
#: The name of each run that gets a line of the user's own table.
RUN = "of-anchorlegs-tests"
_RUNS_LINE = re.compile(rf"# anchorleg {RUN}-[0-9a-f]+\n?$".encode())
_STAND_IN = """\
#!/bin/sh
case $1 in
-l) [ -e "$0.broken" ] && { echo 'Input/output error' >&2; exit 1; }
    cat "$0.table" 2>/dev/null || { echo 'no crontab for me' >&2; exit 1; } ;;
-) cat >"$0.$$" && mv "$0.$$" "$0.table" ;;
-r) rm "$0.table" ;;
esac
"""


def table() -> bytes:
    """What `crontab` has; empty where it says that it has none. Errors: RuntimeError where it fails otherwise."""
    done = subprocess.run(["crontab", "-l"], capture_output=True, check=False, timeout=PATIENCE_S)
    if done.returncode != 0 and b"no crontab for" not in done.stderr:
        raise RuntimeError(f"crontab -l ended with {done.returncode}: {done.stderr.decode()}")
    return done.stdout


def install(content: bytes) -> None:
    """Put it in the place of all that is there; empty: no table."""
    command = ["crontab", "-"] if content else ["crontab", "-r"]
    subprocess.run(command, input=content, capture_output=True, check=bool(content), timeout=PATIENCE_S)


@contextlib.contextmanager
def others_in_it() -> Iterator[bytes]:
    """The table has `OTHERS` behind what it had, which stays in force. Yields all of it.

    At both ends what is of the tests is taken out, and nothing else: one whom SIGKILL takes leaves it to the next one,
    and what the user changes meanwhile stays. Errors: as `table`, before anything is changed.
    """
    before = _without_ours(table())
    before += b"\n" if before and not before.endswith(b"\n") else b""
    install(before + OTHERS)
    try:
        yield before + OTHERS
    finally:
        install(_without_ours(table()))


def _without_ours(content: bytes) -> bytes:
    ours = OTHERS.splitlines(keepends=True)
    kept = (line for line in content.splitlines(keepends=True) if line not in ours and not _RUNS_LINE.search(line))
    return b"".join(kept)


def make_stand_in(folder: Path) -> None:
    """A program `crontab` in a new `folder`, with a table of its own there, which cron's daemon never reads."""
    folder.mkdir()
    (folder / "crontab").write_text(_STAND_IN)
    (folder / "crontab").chmod(0o755)
