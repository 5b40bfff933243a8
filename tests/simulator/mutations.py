"""Rules of the controller, broken on purpose: the simulator must find each. A test of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from slurm_model import SimExecutor

from orchestrator.decisions import sightings
from orchestrator.executors.base import Poll, Refused, SubmitOutcome, Uncertain
from orchestrator.run import lease as lease_module


@contextmanager
def _instead(place: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(place, name)
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)


@contextmanager
def absent_is_gone() -> Iterator[None]:
    """A job that one complete answer does not have is over at once."""
    with (
        _instead(SimExecutor, "forget_after_s", lambda _self: -1.0),
        _instead(sightings, "HEARTBEAT_SILENT_S", -1.0),
    ):
        yield


@contextmanager
def uncertain_is_refused() -> Iterator[None]:
    """An sbatch without a clear answer failed."""
    submit = SimExecutor.submit

    def sure(self: SimExecutor, request: Any) -> SubmitOutcome:
        outcome = submit(self, request)
        return Refused(kind="temporary", words=outcome.why) if isinstance(outcome, Uncertain) else outcome

    with _instead(SimExecutor, "submit", sure):
        yield


@contextmanager
def blind_is_free() -> Iterator[None]:
    """An outage is an empty queue and an empty history."""
    poll = SimExecutor.poll

    def careless(self: SimExecutor) -> Poll:
        answer = poll(self)
        return Poll(at=answer.at) if answer.error else answer

    with absent_is_gone(), _instead(SimExecutor, "poll", careless):
        yield


@contextmanager
def anyone_takes_over() -> Iterator[None]:
    """No owner is ever waited for."""
    with _instead(lease_module, "living_owner", lambda _run_dir, **_: None):
        yield


@contextmanager
def no_claim_fence() -> Iterator[None]:
    """A job that loses the claim runs all the same. (`World` is told by its argument.)"""
    yield


#: By name: how to break it.
MUTATIONS: dict[str, Callable[[], Any]] = {
    "absent is gone at once": absent_is_gone,
    "unclear is not submitted": uncertain_is_refused,
    "blind is free": blind_is_free,
    "take-over without waiting": anyone_takes_over,
    "no claim fence": no_claim_fence,
}
