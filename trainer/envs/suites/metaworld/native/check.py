"""Which tasks may be stepped natively here: those whose every bit was the Python path's, on this type of processor.

The verdicts are kept beside the library, one file a library, processor type and set of versions.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from anchorleg.files import read_json_or_none, write_json
from trainer.envs.suites.metaworld.native.library import StepperLibrary

#: Packages whose version may change a bit of a step.
_PACKAGES = ("metaworld", "mujoco", "numpy", "scipy")

_log = logging.getLogger(__name__)


def approved(stepper: StepperLibrary, tasks: Sequence[str]) -> frozenset[str]:
    """Those of `tasks`, all ported, that step alike on both paths. The others are logged; unknown ones are tried."""
    path = _verdict_file(stepper)
    kept = read_json_or_none(path)
    known: dict[str, Any] = kept if isinstance(kept, dict) else {}
    missing = [task for task in tasks if not isinstance(known.get(task), bool)]
    if missing:
        from trainer.envs.suites.metaworld.native.trial import steps_alike  # noqa: PLC0415 - it loads the simulator

        known = {**known, **{task: steps_alike(stepper, task) for task in missing}}
        try:
            write_json(path, known)
        except OSError as error:
            _log.debug("verdicts of the native stepper not kept: %s", error)
    refused = sorted(task for task in tasks if not known[task])
    if refused:
        _log.warning("the native stepper differs from Python here for %s: Python steps them", ", ".join(refused))
    return frozenset(task for task in tasks if known[task])


def _verdict_file(stepper: StepperLibrary) -> Path:
    name = " ".join([stepper.digest, stepper.machine, *map(version, _PACKAGES)])
    return stepper.folder / f"checked-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"
