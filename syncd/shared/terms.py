"""What a run's owner asks of those who give experience: how much a person may give a day, and of which versions.

::

    runs/<run_id>/terms.json    written by the run's learners, from `collaboration` in the owner's config

Asked by all that take in segments (`syncd.shared.reception`): the server, the gate, and the learner itself.
"""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from anchorleg.files import make_shared_folder
from syncd.shared.layout import Shared, put_json, read_hint

_NUMBERS = re.compile(r"\d{1,6}(\.\d{1,6}){0,3}")


class Terms(BaseModel):
    """`rows_per_day`: rows of one contributor that the run accepts a day (UTC); `oldest_client`: the first version of
    Anchorleg whose experience is taken. None: no such limit.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    rows_per_day: int | None = None
    oldest_client: str | None = None


def terms_file(runs: Path, run_id: str) -> Path:
    """Where a run's terms lie. `runs`: `$SHARED/v1/runs`."""
    return runs / run_id / "terms.json"


def terms_of(runs: Path, run_id: str) -> Terms:
    """A run's terms; none where none are written, or what is written is none."""
    return read_hint(Terms, terms_file(runs, run_id)) or Terms()


def set_terms(shared: Shared, run_id: str, terms: Terms) -> None:
    """Make these the run's terms, durably; without any, where there were none, nothing is written. Errors: OSError."""
    if terms != terms_of(shared.runs, run_id):
        path = terms_file(shared.runs, run_id)
        make_shared_folder(path.parent)
        put_json(path, terms.model_dump())


def is_too_old(version: str, oldest: str) -> bool:
    """Whether `version` comes before `oldest` (both as "0.5.1"; what follows the numbers does not count). One that has
    no number ("unknown") is too old.
    """
    ours, asked = _NUMBERS.match(version), _NUMBERS.match(oldest)
    return asked is not None and (ours is None or _parts(ours[0]) < _parts(asked[0]))


def _parts(numbers: str) -> tuple[int, ...]:
    """The numbers, without zeros at the end: 0.5 is 0.5.0."""
    parts = [int(part) for part in numbers.split(".")]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)
