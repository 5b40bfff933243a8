"""The agent's own crash counter, and what keeps its log small: launchd has neither, and would start a broken agent for
ever.

`agent.json`, beside the settings, holds what was installed, and when the agent started without having ended well
since. An agent that finds too many of them writes down why, and ends with 0, after which neither service manager
starts it again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import threading
from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from anchorleg.files import write_bytes, write_json
from syncd.access.settings import config_folder
from syncd.shared.disk import writing
from syncd.shared.layout import read_hint

#: This many bad ends within the window are a loop.
MAX_CRASHES = 5
#: launchd starts no sooner than 30 s after the last start, so that five crashes take 2.5 minutes at least: a window
#: of two minutes, systemd's, would never fill. Ten minutes also catch an agent that lives for a minute or two.
CRASH_WINDOW_S = 600.0


class Record(BaseModel):
    """What is known of the agent. Times are unix seconds. `stopped` is why it will not start again, or ""."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    remote: str = ""
    folder: str = ""
    started: tuple[float, ...] = ()
    stopped: str = ""
    stopped_at: float | None = None


def begin(record: Record, now: float) -> Record:
    """The agent starts: every start in `record.started` ended badly, else it would not be there.

    `stopped` is set where it had better not go on. A start after a stop (by a person, or at a login) begins anew.
    """
    earlier = () if record.stopped else record.started
    recent = tuple(at for at in earlier if now - CRASH_WINDOW_S < at <= now)
    if len(recent) >= MAX_CRASHES:
        words = f"it crashed {len(recent)} times within {CRASH_WINDOW_S / 60:.0f} minutes"
        return record.model_copy(update={"started": (), "stopped": words, "stopped_at": now})
    return record.model_copy(update={"started": (*recent, now), "stopped": "", "stopped_at": None})


def end(record: Record, now: float, *, because: str = "") -> Record:
    """The agent ends well; `because`: a person must mend something, so that starting it again is of no use."""
    return record.model_copy(update={"started": (), "stopped": because, "stopped_at": now if because else None})


def record_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the record lies: one agent a user, one record."""
    return config_folder(environ) / "agent.json"


def read_record(path: Path) -> Record:
    """What is written; an absent or damaged file is an empty record."""
    return read_hint(Record, path) or Record()


def write_record(path: Path, record: Record) -> None:
    """Errors: StorageError."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(path, record.model_dump())


#: Some weeks of one line a policy; what is older interests nobody.
MAX_LOG_BYTES = 4 * 2**20
#: Between two looks: at one line in a few seconds it grows by kilobytes.
LOOK_S = 600.0


def is_log(fd: int) -> bool:
    """Whether `fd` is a plain file, and so somebody's log that nobody else rotates."""
    return stat.S_ISREG(os.fstat(fd).st_mode)


def shorten(fd: int, path: Path, max_bytes: int = MAX_LOG_BYTES) -> bool:
    """Where the log `path`, open for appending as `fd`, is too long: keep its end as `<path>.1` and empty it.

    Emptied, not renamed: the manager gives the same file to the next start. Errors: OSError.
    """
    if os.fstat(fd).st_size <= max_bytes:
        return False
    with open(path, "rb") as file:
        file.seek(-max_bytes, os.SEEK_END)
        write_bytes(path.with_name(f"{path.name}.1"), file.read())
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)  # else a hole of the old length
    os.ftruncate(fd, 0)
    return True


def keep_short(fd: int, path: Path) -> None:
    """Look now and then, in the background, as long as the process lives. Trouble with the log is no trouble."""

    def look() -> None:
        stop = threading.Event()
        while True:
            try:
                shorten(fd, path)
            except OSError as error:
                with contextlib.suppress(OSError):
                    os.write(fd, f"the log cannot be shortened: {error.strerror}\n".encode())
            stop.wait(LOOK_S)

    threading.Thread(target=look, name="log", daemon=True).start()
