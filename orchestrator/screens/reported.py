"""What a program last said of itself in `progress.json`. Read-only."""

from __future__ import annotations

from typing import Any

from anchorleg.files import read_json_or_none
from orchestrator.decisions.evidence import Progress
from orchestrator.decisions.models import Attempt
from orchestrator.run.evidence import changed_at, read_record
from orchestrator.run.rundir import RunDir

NAME = "progress.json"
#: An attempt's own file is missing while it starts; those before it stand in.
ATTEMPTS_BACK = 3
UNUSABLE = f"its {NAME} is not used: it must hold three whole numbers, step, total and checkpoint_step"


def newest_progress(run_dir: RunDir, slot: int, attempt: Attempt | None) -> dict[str, Any]:
    """The newest file among this attempt and the ones before, with its `attempt`; empty where there is none."""
    first = attempt.number if attempt is not None else -1
    for number in range(first, max(-1, first - ATTEMPTS_BACK), -1):
        path = run_dir.attempt(slot, number) / NAME
        checked = read_record(Progress, path)
        if checked is not None:
            more: dict[str, Any] = read_json_or_none(path) or {}
            at = checked.at or changed_at(path)  # a foreign program may not say when
            return {**more, **checked.model_dump(), "at": at, "attempt": number}
    return {}


def unusable_progress(run_dir: RunDir, slot: int, attempt: Attempt | None) -> str:
    """A sentence where the attempt has a file that cannot be used; else empty."""
    if attempt is None:
        return ""
    path = run_dir.attempt(slot, attempt.number) / NAME
    return UNUSABLE if path.exists() and read_record(Progress, path) is None else ""
