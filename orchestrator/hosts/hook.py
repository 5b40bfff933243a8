"""The user's own command, told what happened: config field `notify`. The only place that runs it.

The command gets its words from the environment (`ANCHORLEG_EVENT`, `_RUN_NAME`, `_RUN_ID`, `_SLOT`, `_WORDS`) and the
same with all facts as one JSON object on its standard input. The controller waits for it only at its own end. What is
told, and that it is told once, `orchestrator.decisions.requests` decides from the ledger.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from anchorleg.places import user_path
from orchestrator.run.rundir import Run, RunDir

#: A mail or a chat message takes seconds; what takes longer is broken, and ticks must go on.
TIMEOUT_S = 30.0
#: A controller that ends waits so long in all for what is still to be told.
CLOSE_TIMEOUT_S = TIMEOUT_S + 5.0
#: Events that wait for the one before; a thousand slots that fail at once need no thousand mails.
MOST_WAITING = 100
#: The system takes no variable of more than 128 KiB; all the words are in the facts.
WORDS_CHARS = 1000


class Hook:
    """`notify` of one run. `say` gets one line where the command fails. Without a command it does nothing."""

    def __init__(
        self,
        run: Run,
        run_dir: RunDir,
        say: Callable[[str], None],
        *,
        timeout_s: float = TIMEOUT_S,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
        most_waiting: int = MOST_WAITING,
    ) -> None:
        self._run, self._run_dir, self._say = run, run_dir, say
        self._timeout_s, self._close_timeout_s, self._most_waiting = timeout_s, close_timeout_s, most_waiting
        self._pool = ThreadPoolExecutor(1, "notify")
        self._waiting: list[Future[None]] = []

    def __call__(self, kind: str, facts: dict[str, Any]) -> None:
        """Tell of an event. Returns at once, raises nothing. `facts`: JSON values, with `words` and perhaps `slot`."""
        if self._run.config.notify is None:
            return
        self._waiting = [one for one in self._waiting if not one.done()]
        if len(self._waiting) > self._most_waiting:
            self._say(f"notify: {kind} was not sent: {self._most_waiting} events already wait")
            return
        try:
            self._waiting.append(self._pool.submit(self._tell, kind, {**facts, "at": time.time()}))
        except RuntimeError:  # login nodes limit how many threads a user may have; the pool keeps it
            self._say(f"notify: {kind} must wait: the system allows no new thread now")

    def close(self) -> None:
        """Wait until everything is told, a bounded time. It may be called again afterwards."""
        late = wait(self._waiting, self._close_timeout_s).not_done
        for one in late:
            one.cancel()
        if late:
            self._say(f"notify: {len(late)} events were not sent, because the command takes too long")

    def _tell(self, kind: str, facts: dict[str, Any]) -> None:
        if complaint := self._run_command(kind, facts):
            self._say(f"notify: {kind}: {complaint}")

    def _run_command(self, kind: str, facts: dict[str, Any]) -> str | None:
        """What went wrong; None: nothing."""
        run = self._run
        command = list(run.config.notify or ())
        if "/" in command[0]:
            command[0] = str(Path(run.folder) / user_path(command[0]))
        slot = "" if facts.get("slot") is None else str(facts["slot"])
        words = str(facts.get("words") or kind)
        described = {"EVENT": kind, "RUN_NAME": run.config.run_name, "RUN_ID": run.run_id, "SLOT": slot}
        value = {name.lower(): text for name, text in described.items()} | facts
        value |= {"run_dir": str(self._run_dir.path), "words": words}
        described["WORDS"] = words[:WORDS_CHARS].replace("\0", " ")
        try:
            child = subprocess.Popen(
                command,
                cwd=run.folder if os.path.isdir(run.folder) else "/",  # that it is gone is news itself
                env={**run.env, **{f"ANCHORLEG_{name}": text for name, text in described.items()}},
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return f"{command[0]} could not be started: {error.strerror}"
        try:
            _, complaint = child.communicate(json.dumps(value, default=str).encode() + b"\n", timeout=self._timeout_s)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return f"{command[0]} took longer than {self._timeout_s:.0f} s and was ended"
        except OSError as error:
            return f"{command[0]}: {error.strerror}"
        if child.returncode == 0:
            return None
        last = complaint.decode(errors="replace").strip()[-200:].replace("\n", " / ")
        return f"{command[0]} ended with {child.returncode}{': ' + last if last else ''}"
