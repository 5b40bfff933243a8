"""What rsync brings of `v1/runs`: what filters choose, files by name, and curves, a slice of time at each look."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

from syncd.errors import RemoteError, StorageError, TooMuchError
from syncd.shared.curves import MAX_CHUNK_BYTES
from syncd.shared.layout import Shared
from syncd.transports.runner import BULK_TIMEOUT_S, PARTIAL_CODES, PARTIAL_DIR, EnoughError, FolderBounds, Runner, usage
from syncd.wire.transport import MAX_CURVES_BYTES

#: What curves leave of their disk to the policies.
SPARE_BYTES = 2**28
#: How long curves come before policies are looked for again: shortly at first, then twice as long each time, at most
#: a minute.
FIRST_SLICE_S, SLICE_S = 5.0, 60.0

RUNS = "v1/runs"
#: The folders of slots.
SLOTS = ("--include=/*/", "--include=/*/*/")
_CURVES = (*SLOTS, "--include=/*/*/metrics/", "--include=/*/*/metrics/*.jsonl", "--exclude=*")


def bring_runs(
    runner: Runner,
    into: Shared,
    words: Sequence[str],
    timeout_s: float,
    bounds: FolderBounds,
    until: float = math.inf,
) -> bool:
    """Fetch what `words` choose of `v1/runs`; whether that is there. `until`: as of `Runner.run`.

    Errors: RemoteError, UnreachableError; those of `bounds`; EnoughError.
    """
    into.runs.mkdir(parents=True, exist_ok=True)
    words = ["-rt", *words, runner.there(f"{RUNS}/"), f"{into.runs}/"]
    done = runner.run(words, timeout_s=timeout_s, bounds=bounds, until=until)
    runner.insist(done, *PARTIAL_CODES)
    if done.returncode and "change_dir" in done.stderr:  # no runs yet, or no such folder at all
        if runner.run([runner.there("")]).returncode:
            raise RemoteError(
                f"{runner.remote.path} is no folder over there: name the shared folder that the run writes to"
            )
        return False
    return True


def bring_names(
    runner: Runner, names: Sequence[str], into: Path, most: int, bounds: FolderBounds, until: float = math.inf
) -> None:
    """Fetch files of `v1/runs` by name. What is gone over there, or larger than `most`, is passed over. `until`,
    errors: as `bring_runs`.
    """
    listed = runner.folder / "names"
    listed.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    limits = [PARTIAL_DIR, f"--max-size={most}", f"--files-from={listed}"]
    words = ["-t", *limits, runner.there(f"{RUNS}/"), f"{into}/"]
    done = runner.run(words, timeout_s=BULK_TIMEOUT_S, bounds=bounds, until=until)
    runner.insist(done, *PARTIAL_CODES)


class CurveStage:
    """The curves that came over `runner`, in a folder of their own. `files`: no more than so many.

    `left_out`: why some were left out by the last `bring`, as a sentence; `more`: whether it had no time for all.
    """

    def __init__(self, runner: Runner, files: int) -> None:
        self.shared = Shared(runner.folder / "curves")
        self.left_out, self.more = "", False
        self._runner, self._files = runner, files
        self._too_many = ""
        self._slice_s = FIRST_SLICE_S

    def bring(self) -> None:
        """Fetch what comes in one slice; the next one goes on from what lies here. While the disk is nearly full,
        nothing comes.

        Errors: UnreachableError, RemoteError; TooMuchError where those that came grow beyond any bound, too.
        """
        self.left_out, self.more = self._too_many, False
        _, before = usage(self.shared.path)
        try:
            self._bring_until(time.monotonic() + self._slice_s)
        except EnoughError:
            came = max(0, usage(self.shared.path)[1] - before)
            self._runner.bytes["received"] += came  # an rsync that is told to end says nothing of them
            # Where nothing came, the names alone take longer than that.
            self._slice_s = min(2 * self._slice_s, SLICE_S if came else BULK_TIMEOUT_S)
            self.more = True
        except StorageError as error:
            self.left_out = f"no curves are fetched for now, policies are ({error})"
        except TooMuchError as error:
            if self._too_many:
                raise
            self._too_many = self.left_out = f"of the curves some are left out, of the policies none ({error})"

    def _bring_until(self, until: float) -> None:
        """Fetch all of them; once there were too many, only what came of them: their last parts grow."""
        times = 2 if self._too_many else 1
        most = times * MAX_CURVES_BYTES
        bounds = FolderBounds(self.shared.path, self._runner.place, times * self._files, most, SPARE_BYTES)
        bounds.check_disk()  # before anything comes: a full disk is looked at by every look
        if not self._too_many:
            words = [PARTIAL_DIR, *_CURVES, f"--max-size={MAX_CHUNK_BYTES}"]
            bring_runs(self._runner, self.shared, words, BULK_TIMEOUT_S, bounds, until)
            return
        parts = (file for place in self.shared.slots() for file in place.metrics.glob("*.jsonl"))
        names = [file.relative_to(self.shared.runs).as_posix() for file in parts]
        if names:
            bring_names(self._runner, names, self.shared.runs, MAX_CHUNK_BYTES, bounds, until)
