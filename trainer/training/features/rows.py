"""Rows of metrics: what the nets are like inside, the journal that all curves are made from, TensorBoard's events."""

from __future__ import annotations

import logging
import math
import os
import socket
import struct
import time
from array import array
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from anchorleg.files import make_folder
from anchorleg.job import Job
from trainer.algorithms.common.diagnostics import INTERVAL_UPDATES
from trainer.history.read import METRICS, Journal, evaluation_scalars, scalars
from trainer.training.features.base import Feature, RunningAttempt
from trainer.training.run import TrainingRun, crossed

_log = logging.getLogger(__name__)


class Diagnostics(Feature):
    """Adds what the nets are like inside to the first row past a multiple of so many updates; draws from no stream."""

    def on_row(self, run: RunningAttempt, row: dict[str, Any]) -> None:
        add_diagnostics(run.state, row)


def add_diagnostics(state: TrainingRun, row: dict[str, Any], interval: int | None = None) -> None:
    """Where they are due, `diagnostics` of the nets, and of each task more."""
    if not crossed(state.updates - row["updates"], state.updates, INTERVAL_UPDATES if interval is None else interval):
        return
    if (found := state.algorithm.diagnose(state.step)) is None:
        return
    row["diagnostics"] = _readable(found.nets)
    for of_task, measured in zip(row["tasks"].values(), found.tasks, strict=True):
        of_task.update(_readable(measured))


def _readable(values: Mapping[str, float]) -> dict[str, float]:
    """Six digits of each, which say all that a probe can; without those that are not finite, which JSON has no word
    for (whether a training goes on is for its losses and parameters to say).
    """
    return {name: float(f"{value:.6g}") for name, value in values.items() if math.isfinite(value)}


class MetricsJournal(Feature):
    """`metrics.jsonl` of the attempt. Evaluations have a journal of their own (`features/evaluation.py`)."""

    def __init__(self, job: Job) -> None:
        self._journal = Journal(job.attempt_dir / METRICS)

    def on_row(self, run: RunningAttempt, row: dict[str, Any]) -> None:
        self._journal.add(row)

    def before_save(self, run: RunningAttempt) -> None:
        self._journal.flush()


class TensorBoardEvents(Feature):
    """TensorBoard's events of a slot, in `<slot_dir>/tb`: one run for it, with an event file of each attempt.

    What an attempt wrote past `after`, its successor's parent step, is the successor's to write again; its file tells
    TensorBoard to forget the first copy. It is a convenience: trouble ends it, no more.
    """

    def __init__(self, folder: Path, after: int) -> None:
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}.{os.getpid()}.{after}"
        self._path: Path | None = folder / name
        self._after = after

    def begin(self, run: RunningAttempt) -> None:
        for what in (field(3, b"brain.Event:2"), field(7, b"\x08\x01")):  # its format; a session starts
            self._add(self._after + 1, what)

    def on_row(self, run: RunningAttempt, row: dict[str, Any]) -> None:
        self._add(row["to"], field(5, summary(scalars(row))))

    def on_evaluation(self, run: RunningAttempt, row: Mapping[str, Any]) -> None:
        self._add(row["step"], field(5, summary(evaluation_scalars(row))))

    def _add(self, step: int, what: bytes) -> None:
        try:
            if self._path:
                make_folder(self._path.parent)
                with open(self._path, "ab") as file:
                    file.write(record(b"\x09" + struct.pack("<d", time.time()) + b"\x10" + varint(step) + what))
        except OSError as error:
            _log.warning("no more TensorBoard events: %s", error)
            self._path = None


def summary(values: Mapping[str, float]) -> bytes:
    """Named numbers (tensorflow/core/framework/summary.proto; its events: core/util/event.proto)."""
    named = (field(1, name.encode()) + b"\x15" + array("f", [value]).tobytes() for name, value in values.items())
    return b"".join(field(1, each) for each in named)


def record(event: bytes) -> bytes:
    """A TFRecord: length, `event`, and the sums of both."""
    length = struct.pack("<Q", len(event))
    return length + masked_crc(length) + event + masked_crc(event)


def field(number: int, data: bytes) -> bytes:
    """A field of a protobuf message that has bytes, a text or a message."""
    return bytes([number << 3 | 2]) + varint(len(data)) + data


def varint(number: int) -> bytes:
    """`number`, seven bits a byte, the lowest first."""
    return (bytes([number & 0x7F | 0x80]) + varint(number >> 7)) if number > 0x7F else bytes([number])


def masked_crc(data: bytes) -> bytes:
    """CRC-32C, rotated and shifted."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _crc_of((crc ^ byte) & 0xFF) ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF)


@cache
def _crc_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte
