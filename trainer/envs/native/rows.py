"""The rows of one group of environments, whichever stepper steps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.envs.native.library import Bound, NativeLibrary
from trainer.envs.suite import StepFaultError


class SteppedRows:
    """Rows, of which those with a binding taken are stepped by `bound`.

    A row has the fields `finished` and `fault`; `faults` says what the numbers of the latter mean, of which one is
    `simulator_fault`.
    """

    def __init__(
        self,
        library: NativeLibrary,
        rows: npt.NDArray[Any],
        bound: Bound,
        faults: Mapping[int, str],
        simulator_fault: int,
    ) -> None:
        self.rows = rows
        self._library, self._bound = library, bound
        self._faults, self._simulator_fault = faults, simulator_fault
        self._team = bound.team.value or 0

    def step(self) -> list[int]:
        """Step every taken row; the places whose episode has ended. Errors: StepFaultError."""
        ended = self._bound.step()
        if ended < 0:
            place = int(np.flatnonzero(self.rows["fault"])[0])
            fault = int(self.rows["fault"][place])
            said = f": {self._library.error_text()}" if fault == self._simulator_fault else ""
            raise StepFaultError(place, self._faults[fault] + said)
        return np.flatnonzero(self.rows["finished"]).tolist() if ended else []

    def race(self, steps: int) -> None:
        """The physics of `steps` steps alone: for measurements."""
        self._bound.race(steps)

    def close(self) -> None:
        """End the threads. May be called twice."""
        self._library.close_team(self._team)
        self._team = 0
