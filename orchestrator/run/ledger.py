"""Reading and writing the ledger, the control files, and the event history.

The ledger of epoch e is written by the owner of epoch e only; a reader takes the highest epoch that has one. The
history, a line of JSON for each thing that happened, lies in the file of the owner's epoch. Ticks of a crontab are an
owner each, so old files are joined: `events-<first>-<last>.jsonl` counts before any file of those epochs that a crash
left behind.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_core import from_json

from anchorleg.files import to_json
from orchestrator.decisions.models import LEDGER_VERSION, Ledger
from orchestrator.decisions.requests import Control
from orchestrator.disk import numbers_in, read_json, read_json_or_none
from orchestrator.errors import RecordError, RunFolderError
from orchestrator.run.rundir import RunDir

#: Enough to see what happened in the last takeovers; each is a few kilobytes.
EPOCHS_KEPT = 10


def _ledger_epochs(run_dir: RunDir) -> list[int]:
    ledgers = [name for name in run_dir.disk.names(run_dir.path) if name.startswith("ledger-")]
    numbers = [name.removeprefix("ledger-").removesuffix(".json") for name in ledgers if name.endswith(".json")]
    return sorted((int(number) for number in numbers if number.isdecimal()), reverse=True)


def newest_epoch(run_dir: RunDir) -> int | None:
    """The highest epoch that has a ledger."""
    # By the leases, if there are any: a run that a crontab ticks has thousands of histories beside its few ledgers.
    for epoch in reversed(numbers_in(run_dir.disk, run_dir.lease)):
        if run_dir.disk.exists(run_dir.ledger(epoch)):
            return epoch
    return next(iter(_ledger_epochs(run_dir)), None)


def load_ledger(run_dir: RunDir, run_id: str) -> Ledger | None:
    """The newest ledger; None where there is none yet. Errors: RunFolderError where it is torn or foreign."""
    newest = newest_epoch(run_dir)
    if newest is None:
        return None
    path = run_dir.ledger(newest)
    try:
        return _parsed(run_dir.disk.read(path), run_id)
    except ValueError as error:
        older = [epoch for epoch in _ledger_epochs(run_dir) if epoch != newest]
        good = next((run_dir.ledger(epoch) for epoch in older if _loads(run_dir, epoch, run_id)), None)
        raise RunFolderError("ledger.damaged", path=path, why=_first_line(error), good=good or "none") from None


def _parsed(data: bytes, run_id: str) -> Ledger:
    try:
        ledger = Ledger.model_validate_json(data)
        version = ledger.version if "version" in ledger.model_fields_set else None
    except ValidationError:
        value = from_json(data)
        version = value.get("version") if isinstance(value, dict) else LEDGER_VERSION
        if version == LEDGER_VERSION:
            raise
    if version != LEDGER_VERSION:
        raise RecordError("ledger.version", found=version, wanted=LEDGER_VERSION)
    if ledger.run_id != run_id:
        raise RecordError("ledger.other-run", found=ledger.run_id, wanted=run_id)
    return ledger


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)


def _loads(run_dir: RunDir, epoch: int, run_id: str) -> bool:
    try:
        return _parsed(run_dir.disk.read(run_dir.ledger(epoch)), run_id) is not None
    except (OSError, ValueError):
        return False


def save_ledger(run_dir: RunDir, ledger: Ledger, now: float) -> Ledger:
    """Write it with the next beat, a slot a line, and return what was written. Errors: OSError."""
    written = ledger.model_copy(update={"beat": ledger.beat + 1, "written_at": now})
    head = written.model_dump_json(exclude={"slots"}, exclude_none=True)
    slots = ",\n".join(slot.as_json for slot in written.slots)
    data = f'{head[:-1]},"slots":[\n{slots}\n]}}\n'.encode()
    run_dir.disk.write(run_dir.ledger(ledger.epoch), data)
    return written


def drop_old_epochs(run_dir: RunDir) -> None:
    """Keep the newest `EPOCHS_KEPT` ledgers and lease records, the newest ledger in any case, and the history."""
    newest, names = newest_epoch(run_dir), run_dir.disk.names(run_dir.lease)
    taken = numbers_in(run_dir.disk, run_dir.lease)[::-1]
    for epoch in taken[EPOCHS_KEPT:]:
        if epoch == newest:  # all who took a lease since then failed before they wrote one
            continue
        run_dir.disk.remove(run_dir.ledger(epoch))
        run_dir.disk.remove(run_dir.lease / str(epoch))
        run_dir.disk.remove(run_dir.lease / f"{epoch}.released")
    for path in (run_dir.lease / name for name in names if name.startswith("seen-")):
        seen = read_json_or_none(run_dir.disk, path)  # `lease.silent_for`: of another owner it tells nothing
        if isinstance(seen, dict) and seen.get("epoch") not in taken[:1]:
            run_dir.disk.remove(path)


def read_control(run_dir: RunDir) -> Control:
    """The newest wish. Errors: RunFolderError where its file is damaged."""
    if not (numbers := numbers_in(run_dir.disk, run_dir.control, ".json")):
        return Control()
    path = run_dir.control / f"{numbers[-1]}.json"
    try:
        return Control.model_validate(read_json(run_dir.disk, path))
    except ValueError as error:
        raise RunFolderError("control.damaged", path=path, why=_first_line(error)) from None


def write_control(
    run_dir: RunDir,
    wish: Literal["run", "stop", "stop-now"],
    *,
    now: float,
    by: str,
    grace_s: float = 0.0,
    until: float | None = None,
) -> Control:
    """Add a wish under the next free number, so that two writers cannot overwrite each other. Errors: OSError."""
    run_dir.disk.make_folder(run_dir.control, exist_ok=True)
    number = read_control(run_dir).number
    while True:
        number += 1
        control = Control(number=number, wish=wish, at=now, by=by, grace_s=grace_s, until=until)
        if _added(run_dir, control):
            return control


def control_at(run_dir: RunDir, now: float, grace_s: float) -> Control:
    """The newest wish at `now` (unix seconds). One whose time is over becomes a `stop` with `grace_s`, also on disk,
    unless somebody wrote another wish meanwhile. Errors: RunFolderError, OSError.
    """
    control = read_control(run_dir)
    due = control.due(now, grace_s)
    return due if due == control or _added(run_dir, due) else read_control(run_dir)


def _added(run_dir: RunDir, control: Control) -> bool:
    data = to_json(control.model_dump(exclude_none=True))
    return run_dir.disk.create(run_dir.control / f"{control.number}.json", data)


#: A folder of so many files is listed in no time; joining is then once in an hour and a half of a crontab at most.
FILES_KEPT = 100
#: What may still be written: an owner that was asleep tells its last events late.
EPOCHS_OPEN = 10
#: A reader that meets a joining looks again; joinings are an hour apart.
LOOKS = 3

_EVENTS = re.compile(r"events-(\d+)(?:-(\d+))?\.jsonl")


def append_event(run_dir: RunDir, epoch: int, kind: str, now: float, **facts: Any) -> None:
    """One line of history. Errors: OSError."""
    run_dir.disk.append(run_dir.events(epoch), {"at": now, "kind": kind, **facts})


def read_events(run_dir: RunDir) -> list[dict[str, Any]]:
    """All events, in the order of their epochs. A torn line of a crash is left out. Errors: OSError."""
    events = []
    for line in _read_whole(run_dir).decode(errors="replace").splitlines():
        with suppress(ValueError, RecursionError):
            events.append(json.loads(line))
    return events


def _read_whole(run_dir: RunDir) -> bytes:
    for _ in range(LOOKS):
        with suppress(FileNotFoundError):  # it was joined with others between our look and our read
            return _joined(run_dir, _parts(run_dir))
    return _joined(run_dir, _parts(run_dir))


def _joined(run_dir: RunDir, parts: list[tuple[int, int, Path]]) -> bytes:
    texts = [run_dir.disk.read(path) for _, _, path in parts]
    # A line that a full disk cut off must not spoil the next file's first one.
    return b"".join(text if text.endswith(b"\n") else text + b"\n" for text in texts if text)


def join_old(run_dir: RunDir, epoch: int) -> None:
    """Join files of epochs long over, where there are many. Killed anywhere, nothing is lost or told twice."""
    names = [name for name in run_dir.disk.names(run_dir.path) if _EVENTS.fullmatch(name)]
    if len(names) <= FILES_KEPT:
        return
    old = [part for part in _parts(run_dir) if part[1] < epoch - EPOCHS_OPEN]
    if len(old) > 1:
        first, last = old[0][0], max(part[1] for part in old)
        run_dir.disk.write(run_dir.path / f"events-{first}-{last}.jsonl", _joined(run_dir, old))
    kept = {path.name for _, _, path in _parts(run_dir)}
    for name in names:
        if name not in kept:
            run_dir.disk.remove(run_dir.path / name)


def _parts(run_dir: RunDir) -> list[tuple[int, int, Path]]:
    """The files that count: (first epoch, last epoch, path), in order. None lies within another."""
    matches = (_EVENTS.fullmatch(name) for name in run_dir.disk.names(run_dir.path))
    found = [(int(m[1]), int(m[2] or m[1]), run_dir.path / m[0]) for m in matches if m]
    parts: list[tuple[int, int, Path]] = []
    for part in sorted(found, key=lambda one: (one[0], -one[1])):
        if not parts or part[1] > parts[-1][1]:
            parts.append(part)
    return parts
