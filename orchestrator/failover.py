"""Failover: a Slurm job that ends while no controller is alive runs one tick itself, so that the relay goes on.

Its shim looks at the owner's files with each heartbeat. Where they have not changed for `SILENT_S` on the job's own
clock, or where the newest owner was another job, it runs `orchestrator tick` after its own record of the end. It never
changes how the job ends. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from anchorleg.files import READ_PAUSE_S, patiently, write_json

#: A controller writes at least every 60 s, cron's every minute; shared folders show it up to a minute later.
SILENT_S = 300.0
#: A tick is three Slurm commands and one more a slot; a scheduler that needs longer does not answer.
TICK_TIMEOUT_S = 60.0
#: Jobs that end together take turns: until the lease of one that died with it is over (`lease.TTL_S`), and a tick more.
TURN_TIMEOUT_S = 240.0
TURN_LOOK_S = 1.0
#: `orchestrator.errors.LeaseHeld` and `StorageError`, and the last of the exit codes that the command itself gives.
LEASE_HELD = 4
STORAGE_ERROR = 7
LAST_KNOWN_CODE = 19
#: As what a failover tick holds the lease.
HOLDER = "tick --failover"


class Watch:
    """What this job has seen of the run's owner: is anybody there?"""

    def __init__(self, run_dir: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.run_dir = run_dir
        self._monotonic = monotonic
        self._sign: tuple[int, int, int] | None = None
        self._since: float | None = None

    def look(self) -> None:
        """Once a heartbeat. A folder that cannot be read says nothing."""
        try:
            sign = self._read_sign()
        except OSError:
            return
        if sign != self._sign or self._since is None:
            self._sign, self._since = sign, self._monotonic()

    def silent_s(self) -> float:
        """For how long nothing has changed."""
        return 0.0 if self._since is None else self._monotonic() - self._since

    def testify(self) -> bool:
        """Write what we saw where the tick reads it (`lease.silent_for`). False: somebody was here. Errors: OSError."""
        # Not above: the first process of every job must start quickly.
        from orchestrator.processes import boot_id, host_name

        before = self._sign
        if before is None or self._since is None or self._read_sign() != before:
            return False
        beat = -1
        with contextlib.suppress(FileNotFoundError, ValueError, AttributeError):
            beat = json.loads((self.run_dir / f"ledger-{before[0]}.json").read_bytes()).get("beat", -1)
        if self._read_sign() != before:
            return False
        seen = {"epoch": before[0], "beat": beat, "at": self._since}
        write_json(self.run_dir / "lease" / f"seen-{host_name()}-{boot_id()}.json", seen)
        return True

    def _read_sign(self) -> tuple[int, int, int]:
        """(epoch, inode, time) of the newest owner's ledger. It is replaced with every beat: no need to read it."""
        epoch = newest_epoch(self.run_dir)
        try:
            stat = os.stat(self.run_dir / f"ledger-{epoch}.json")
        except FileNotFoundError:
            return epoch, 0, 0
        return epoch, stat.st_ino, stat.st_mtime_ns


def newest_epoch(run_dir: Path) -> int:
    """The newest lease's number, -1 where there is none. Errors: OSError."""
    return max((int(name) for name in os.listdir(run_dir / "lease") if name.isdigit()), default=-1)


def tick_if_alone(
    watch: Watch,
    pythons: Sequence[str],
    environ: Mapping[str, str],
    say: Callable[[str], None],
    *,
    timeout_s: float = TICK_TIMEOUT_S,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Run the tick if nobody else is there to do it, with the first of `pythons` that can. Raises nothing."""
    try:
        # As patient as the tick itself: nobody may come after it.
        if not patiently(lambda: _is_alone(watch, say), tries=round(TURN_TIMEOUT_S / READ_PAUSE_S), sleep=sleep):
            return
        env = tick_environment(environ)
        say(_take_turns(watch.run_dir, lambda: _tick(watch.run_dir, pythons, env, timeout_s), sleep))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        say(f"the tick after this job did not work ({error}); continue with `orchestrator start`")


def _is_alone(watch: Watch, say: Callable[[str], None]) -> bool:
    """Whether nobody else is there to look what is due, as far as this job has seen; says why. Errors: OSError."""
    if _holder(watch.run_dir) == HOLDER:
        say("other jobs ran the last ticks, and no controller has come since: this job runs a tick")
        return True
    watch.look()
    if watch.silent_s() < SILENT_S or not watch.testify():
        return False
    say(f"no controller has written for {watch.silent_s():.0f} s: this job runs a tick")
    return True


def tick_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The job's environment without what it says of this very job."""
    hidden = ("SLURM_", "SBATCH_", "ANCHORLEG_")
    return {name: value for name, value in environ.items() if name == "SLURM_CONF" or not name.startswith(hidden)}


def _take_turns(run_dir: Path, tick: Callable[[], tuple[int, str]], sleep: Callable[[float], None]) -> str:
    """One successful tick, after those of other jobs that end now; returns what to say. Nobody may come after it."""
    give_up_at = time.monotonic() + TURN_TIMEOUT_S
    pause_s = TURN_LOOK_S
    while True:
        code, words = tick()
        if code == 0:
            return "the tick after this job is done; see controller.log"
        if code == LEASE_HELD:
            holder = ""
            with contextlib.suppress(OSError):  # it cannot be told just now
                holder = _holder(run_dir)
            if holder not in {HOLDER, ""}:
                return "a controller is running again"
            words = f"another job's tick takes too long; this job leaves the work to it ({words})"
        if code not in {LEASE_HELD, STORAGE_ERROR} or time.monotonic() > give_up_at:
            return f"the tick after this job ended with {code}: {words}"
        sleep(pause_s)
        pause_s = TURN_LOOK_S if code == LEASE_HELD else min(2 * pause_s, 30.0)


def _tick(run_dir: Path, pythons: Sequence[str], env: dict[str, str], timeout_s: float) -> tuple[int, str]:
    """The tick's exit code and last words, under the first interpreter that can run it."""
    code, words = 127, "no interpreter can run it"
    for interpreter in dict.fromkeys(pythons):
        command = [interpreter, "-P", "-m", "orchestrator", *HOLDER.split(), "--run-dir", str(run_dir)]
        try:
            done = subprocess.run(
                command, cwd="/", env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return 124, f"it took longer than {timeout_s:.0f} s"
        except OSError as error:
            code, words = 127, f"{interpreter}: {error.strerror}"
            continue
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        code, words = done.returncode, lines[-1] if lines else ""
        if code == 0 or 1 < code <= LAST_KNOWN_CODE:
            break  # it is ours that spoke; 1 is an interpreter that lacks a package
    return code, words


def _holder(run_dir: Path) -> str:
    """What the newest owner was started as; empty where there is none, or its record is damaged. Errors: OSError."""
    try:
        record = json.loads((run_dir / "lease" / str(newest_epoch(run_dir))).read_bytes())
        return str(record["command"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return ""
