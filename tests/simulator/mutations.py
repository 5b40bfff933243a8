"""Rules of the controller, broken on purpose: the simulator must find each. A test of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from slurm_model import SimExecutor

from orchestrator import controller as controller_module
from orchestrator.controller import Controller
from orchestrator.decisions import escalation, sightings
from orchestrator.decisions import plan as plan_module
from orchestrator.decisions.models import Ledger, Slot, SlotStatus
from orchestrator.executors.base import Poll, SubmitOutcome, SubmitRefused, Uncertain
from orchestrator.hosts import ticking
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
        return SubmitRefused(kind="temporary", words=outcome.why) if isinstance(outcome, Uncertain) else outcome

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


@contextmanager
def every_end_raises() -> Iterator[None]:
    """Whatever a job ended of, the next one gets more memory."""
    with _instead(escalation, "OUT_OF_MEMORY", ""):
        yield


@contextmanager
def what_has_begun_is_moved() -> Iterator[None]:
    """A job that began since the last look is cancelled to begin in another place."""
    with _instead(controller_module, "MOVED", ""):
        yield


#: By name: how to break it.
MUTATIONS: dict[str, Callable[[], Any]] = {
    "absent is gone at once": absent_is_gone,
    "unclear is not submitted": uncertain_is_refused,
    "blind is free": blind_is_free,
    "take-over without waiting": anyone_takes_over,
    "no claim fence": no_claim_fence,
    "every end raises": every_end_raises,
    "what has begun is moved": what_has_begun_is_moved,
}


@contextmanager
def what_is_put_aside_gets_jobs() -> Iterator[None]:
    """Whoever has no job may have one."""
    next_attempt = plan_module.next_attempt

    def whoever(slot: Slot, newest_folder: int) -> int | None:
        return next_attempt(slot.model_copy(update={"status": SlotStatus.ACTIVE}), newest_folder)

    with _instead(plan_module, "next_attempt", whoever):
        yield


@contextmanager
def places_without_end() -> Iterator[None]:
    """Nobody counts the jobs."""
    with _instead(plan_module, "_room", lambda *_: float("inf")):
        yield


@contextmanager
def rungs_are_forgotten() -> Iterator[None]:
    """A new controller begins the contest anew."""
    inherit = Controller._inherit

    def anew(self: Controller) -> Ledger:
        ledger = inherit(self)
        slots = tuple(slot.model_copy(update={"rungs": (), "level": 0}) for slot in ledger.slots)
        return ledger.model_copy(update={"slots": slots})

    with _instead(Controller, "_inherit", anew):
        yield


#: Of the queue of experiments: how to break it, and in what kind of run.
QUEUE_MUTATIONS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "what is put aside gets jobs": (what_is_put_aside_gets_jobs, {}),
    "places without end": (places_without_end, {"max_jobs": 4, "max_submit": None}),
    "rungs are forgotten": (rungs_are_forgotten, {"halving": 2}),
}


@contextmanager
def failover_ticks_wait_for_room() -> Iterator[None]:
    """A job's tick honours the others' waits."""
    with _instead(ticking, "without_waits_for_room", lambda ledger: ledger):
        yield


@contextmanager
def news_before_the_ledger() -> Iterator[None]:
    """The user hears of it before it is written down."""
    note = Controller._note_news

    def at_once(self: Controller, before: Ledger) -> None:
        note(self, before)
        while self._news:
            self._on_event(*self._news.pop(0))

    with _instead(Controller, "_note_news", at_once):
        yield


@contextmanager
def news_are_lost() -> Iterator[None]:
    """Nobody tells the user."""
    with _instead(Controller, "_note_news", lambda _self, _before: None):
        yield


#: Of failover ticks and of the command hook: how to break it, and in what kind of run.
FAILOVER_MUTATIONS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "failover ticks wait for room": (
        failover_ticks_wait_for_room,
        {"failover": True, "host": "jobs", "max_submit": 4, "max_jobs": None},
    ),
    "news before the ledger": (
        news_before_the_ledger,
        {"fates": {"do not requeue": 0.2}, "rates": {"controller crash at a call": 60.0}},  # it ends between the two
    ),
    "news are lost": (news_are_lost, {"rates": {}, "fates": {"do not requeue": 0.2}, "host": "daemon"}),
}
