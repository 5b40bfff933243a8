"""The user's crontab: one line a run, which looks once a minute. Every contact with cron is in this module.

A line is known by its end, `# anchorleg <run id>`; all other lines stay as they are, byte for byte. `lease/cron.json`
in the run folder says on which machine the line is: a crontab belongs to one machine, a run folder to many.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from anchorleg.files import to_json
from anchorleg.places import own_folder
from orchestrator.errors import ConfigError
from orchestrator.processes import host_name
from orchestrator.run.cronrecord import CronHost, cron_record, host_of
from orchestrator.run.rundir import Run, RunDir

#: crontab(1) copies a small file.
COMMAND_TIMEOUT_S = 20.0
#: The most of a command that Debian's cron takes (MAX_COMMAND in its cron.h); cronie takes more.
LONGEST_COMMAND = 998
#: Whoever changes the table needs a second, `crontab` twice.
LOCK_TIMEOUT_S = 60.0
LOCK_LOOK_S = 0.05


def register(run: Run, run_dir: RunDir, now: float) -> None:
    """Write the run's line, in place of an older one. Errors: ConfigError where there is no crontab for us, OSError.
    Then the record says what it said before.
    """
    line = line_of(run, run_dir)
    record, path = CronHost(host=host_name(), run_id=run.run_id, since=now), cron_record(run_dir)
    said_before = run_dir.disk.read(path) if run_dir.disk.exists(path) else None
    run_dir.disk.write(path, to_json(record.model_dump()))  # first: whoever looks for the line looks here
    try:
        with _alone():
            before = read_table()
            after = with_line(before, run.run_id, line)
            if after != before:
                _install(after)
    except (ConfigError, OSError):
        with suppress(OSError):
            if said_before is None:
                run_dir.disk.remove(path)
            else:
                run_dir.disk.write(path, said_before)
        raise


def unregister(run_id: str, run_dir: RunDir) -> bool:
    """Take the run's line out, if this machine has it. False: another machine has it, whose next tick takes it out.

    Errors: ConfigError, OSError.
    """
    registered = host_of(run_dir)
    if registered is None:
        return True
    if not registered.is_here:
        return False
    take_out(run_id)
    run_dir.disk.remove(cron_record(run_dir))
    return True


def take_out(run_id: str) -> None:
    """Take a run's line out of this machine's crontab, whatever became of its folder. Errors: ConfigError."""
    with _alone():
        before = read_table()
        after = without_line(before, run_id)
        if after != before:
            _install(after)


def line_of(run: Run, run_dir: RunDir) -> bytes:
    """The run's line: this run's fixed code under its controller's interpreter. Errors: ConfigError."""
    words = (
        "/usr/bin/env",  # a variable before a command is no syntax in csh, which SHELL= in a crontab may name
        f"PYTHONPATH={run_dir.code / run.code}",
        run.controller_python,
        *("-P", "-m", "orchestrator", "tick", "--cron", run.run_id, "--run-dir", str(run_dir.path)),
    )
    # Of two backslashes cron takes the first for the second's: so a quoted one ends its quotes before a per cent.
    command = shlex.join(words).replace("\\%", "\\''%").replace("%", "\\%") + tag_of(run.run_id)
    if "\n" in command or len(os.fsencode(command)) > LONGEST_COMMAND:
        raise ConfigError(
            f"run_dir: {run_dir.path} cannot be written into a line of crontab (at most {LONGEST_COMMAND} bytes, no "
            "line breaks): use a shorter path, or `--via daemon`."
        )
    return os.fsencode(f"* * * * * {command}\n")


def tag_of(run_id: str) -> str:
    """How the line of a run ends."""
    return f" # anchorleg {run_id}"


def with_line(table: bytes, run_id: str, line: bytes) -> bytes:
    """`table` with the run's line: where an older one is, in its place, else at the end."""
    tag = os.fsencode(tag_of(run_id))
    lines = table.splitlines(keepends=True)
    places = [number for number, old in enumerate(lines) if old.rstrip(b"\r\n").endswith(tag)]
    if not places:
        whole = table if not table or table.endswith(b"\n") else table + b"\n"
        return whole + line
    lines[places[0]] = line
    return b"".join(old for number, old in enumerate(lines) if number not in places[1:])


def without_line(table: bytes, run_id: str) -> bytes:
    """`table` without the run's line."""
    tag = os.fsencode(tag_of(run_id))
    lines = table.splitlines(keepends=True)
    return b"".join(line for line in lines if not line.rstrip(b"\r\n").endswith(tag))


def read_table(timeout_s: float = COMMAND_TIMEOUT_S) -> bytes:
    """The user's crontab; empty where there is none. Errors: ConfigError where we may not have one."""
    done = _crontab("-l", timeout_s=timeout_s)
    if done.returncode == 0:
        return done.stdout
    words = done.stderr.decode(errors="replace").strip()
    if "no crontab for" in words:
        return b""
    raise ConfigError(
        f"--via cron: crontab says: {words or f'(nothing, and ended with {done.returncode})'}. {_INSTEAD}"
    )


_INSTEAD = "Use `--via daemon`, or ask the site for cron."


def _install(table: bytes) -> None:
    done = _crontab("-", table) if table else _crontab("-r")
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip()
        raise ConfigError(f"--via cron: crontab refused the new table: {words}. {_INSTEAD}")


def _crontab(
    option: str, table: bytes | None = None, timeout_s: float = COMMAND_TIMEOUT_S
) -> subprocess.CompletedProcess[bytes]:
    command = shutil.which("crontab", path=_path())
    if command is None:
        raise ConfigError(f"--via cron: there is no crontab on this machine. {_INSTEAD}")
    try:
        return subprocess.run(
            [command, option],
            input=table if table is not None else b"",
            env={**os.environ, "LC_ALL": "C"},
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"--via cron: crontab did not answer ({error}). {_INSTEAD}") from None


def _path(environ: Mapping[str, str] = os.environ) -> str:
    # cron itself gives its jobs no more than this.
    return f"{environ.get('PATH', '')}:/usr/bin:/bin"


@contextmanager
def _alone(timeout_s: float = LOCK_TIMEOUT_S) -> Iterator[None]:
    """Of all our processes on this machine only we change the table now: crontab(1) knows only whole tables."""
    # Not in /tmp, where anybody could hold it for ever. Its home may be every machine's: the table is this one's.
    path = own_folder("state") / f"crontab-{host_name()}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"--via cron: {path} cannot be opened ({error.strerror}). {_INSTEAD}") from None
    try:
        _lock(handle, path, timeout_s)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, path: Path, timeout_s: float) -> None:
    give_up_at = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > give_up_at:
                raise ConfigError(
                    f"--via cron: another command of yours has changed the crontab for {timeout_s:.0f} s "
                    f"({path}): see what it waits for, and try again."
                ) from None
            time.sleep(LOCK_LOOK_S)
        except OSError as error:
            raise ConfigError(f"--via cron: {path} cannot be locked ({error.strerror}). {_INSTEAD}") from None
        else:
            return
