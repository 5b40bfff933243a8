"""A slot's curves, as they go to the shared folder: its rows of metrics and its evaluations, over all its attempts."""

from __future__ import annotations

from pathlib import Path

from syncd import store
from trainer.history.journal import EVALUATIONS, METRICS
from trainer.history.read import GrowingRows, read_evaluations


class PublishedCurves:
    """Those of one attempt. Rows of metrics are many (100,000 of 6 kB in the longest preset): those that were written
    once are neither read nor written again, as long as history and curve are what they were.
    """

    def __init__(self, slot_dir: Path, place: store.SlotPlace) -> None:
        self._slot_dir, self._place = slot_dir, place
        self._rows = GrowingRows(slot_dir)
        self._metrics = store.GrowingCurve(place, METRICS.removesuffix(".jsonl"))

    def write(self) -> None:
        """All that is in the journals. Errors: OSError; ValueError, KeyError, TypeError for what no training wrote."""
        anew = not (self._metrics.is_as_left() and self._rows.goes_on())
        self._metrics.write(self._rows.rows(anew=anew), anew=anew)
        store.write_metrics(self._place, EVALUATIONS.removesuffix(".jsonl"), read_evaluations(self._slot_dir))
