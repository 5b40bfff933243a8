"""What actors found when they tried a policy: whether it reproduces its manifest's golden actions here.

`DIR/state/played.json`: `<run id>/<slot>` → the last verdict of any actor on this machine. A word for `syncd status`;
no file of the mirror depends on it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from anchorleg.files import read_json, write_json
from anchorleg.words import printable
from syncd.shared.layout import SlotPlace

#: Runs that nobody plays any more need no line for ever.
MAX_PLAYED = 200


class Played(BaseModel):
    """One verdict: `version` as `str(Version)`; `ok` or else the `error` as a phrase; unix time."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: str
    ok: bool
    error: Annotated[str, AfterValidator(printable)] = ""
    at: float


def played_file(folder: Path) -> Path:
    """Where the verdicts of the mirror `folder` lie."""
    return folder / "state" / "played.json"


def read_played(folder: Path) -> dict[str, Played]:
    """`<run id>/<slot>` → the last verdict; empty where there is none, or none that can be read."""
    try:
        return {str(key): Played.model_validate(value) for key, value in read_json(played_file(folder)).items()}
    except (OSError, ValueError, ValidationError, AttributeError):
        return {}


def note_played(
    folder: Path, place: SlotPlace, version: object, ok: bool, error: str = "", *, now: float | None = None
) -> bool:
    """Note an actor's verdict on `version` of `place`.

    False where it cannot be written: that costs a line of `status`, not the actor.
    Two actors that write at once may lose one of the two words; the next one writes it again.
    """
    verdict = Played(version=str(version), ok=ok, error=error, at=time.time() if now is None else now)
    known = {**read_played(folder), f"{place.run_id}/{place.slot}": verdict}
    newest = sorted(known.items(), key=lambda item: item[1].at)[-MAX_PLAYED:]
    path = played_file(folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_json(path, {key: value.model_dump() for key, value in newest})
    except OSError:
        return False
    return True
