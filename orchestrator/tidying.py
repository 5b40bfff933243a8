"""What the shim keeps of the checkpoints of a program that is not ours (`relay.keep_checkpoints`).

The newest ones that a successor could start from stay, by the one rule that says so (`job.candidates_before`); the
parent of a job that begins is the first of them. Beside them stays everything of attempts that may be alive, and
everything where a higher attempt has been claimed: the shim looks before every single removal. A checkpoint loses its
number before its first file goes, so a kill in between leaves none that is half there. Standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from anchorleg.files import remove_folder
from anchorleg.job import Job, attempt_numbers, candidates_before, checkpoints_of, passed_over

#: An older attempt without a record of its end is over when its last sign is so much older than our own: by the clock
#: of the files alone, since nodes' clocks differ. A shim beats every 30 s.
SILENT_S = 600.0
#: What an attempt's shim and its program write while they live.
_SIGNS = ("claim", "heartbeat.json", "progress.json")
#: What a removal (`files.remove_folder`) or a publication (`Job.save_checkpoint`) leaves that was cut short.
_REMNANT = re.compile(r"\.\d+\.(deleted|unfinished)")


def tidy(job: Job, keep: int, say: Callable[[str], None], remove: Callable[[Path], None] = remove_folder) -> None:
    """Remove what is too much in the slot of `job`, whose attempt is claimed and whose program does not run.

    `say` hears of what could not be removed, which the next job tries again. Raises nothing of the disk's.
    """
    try:
        for path in list(_too_much(job, keep)):
            if job.superseded_by() is not None:
                return
            try:
                remove(path)
            except OSError as error:
                say(f"could not remove {path} ({error.strerror or error}); the next job tries again")
    except (OSError, ValueError, KeyError) as error:
        say(f"could not look for old checkpoints ({error}); the next job tries again")


def _too_much(job: Job, keep: int) -> Iterator[Path]:
    """What was cut short, then what no successor could start from, then the oldest of what it could.

    While there are fewer than `keep` to start from, what is no candidate stays: a program may have found it damaged,
    and a person might mend it. So do as many that a decision to go back passes over which can still be taken back.
    """
    over = [number for number in attempt_numbers(job.slot_dir) if number == job.attempt or _is_over(job, number)]
    line = list(candidates_before(job.slot_dir, job.attempt + 1))
    staying = {ref.path for ref in (*line, *passed_over(job.slot_dir, job.attempt)[:keep])}
    for number in over:
        yield from _remnants(job.slot_dir / "attempts" / str(number) / "checkpoints")
    for number in over if len(line) >= keep else ():
        yield from (ref.path for ref in checkpoints_of(job.slot_dir, number) if ref.path not in staying)
    yield from (ref.path for ref in line[keep:][::-1] if ref.attempt in over)


def _remnants(folder: Path) -> list[Path]:
    try:
        return [folder / name for name in sorted(os.listdir(folder)) if _REMNANT.fullmatch(name)]
    except FileNotFoundError:
        return []


def _is_over(job: Job, number: int) -> bool:
    """Whether an older attempt has ended: by its own record, or by its silence."""
    folder = job.slot_dir / "attempts" / str(number)
    if number > job.attempt:
        return False
    return (folder / "exit.json").exists() or _last_sign(job.attempt_dir) - _last_sign(folder) > SILENT_S


def _last_sign(folder: Path) -> float:
    """When the attempt in `folder` last wrote something, as the files' own clock tells; 0: never."""
    found = [0.0]
    for name in _SIGNS:
        try:
            found.append(os.stat(folder / name).st_mtime)
        except FileNotFoundError:
            continue
    return max(found)
