"""`start` typed once more for a run: which slots go on, by what the config asks of them now. Pure."""

from __future__ import annotations

from orchestrator.config import RunConfig
from orchestrator.decisions.edits import reactivated
from orchestrator.decisions.models import Ledger, Slot
from orchestrator.decisions.nodes import forgiven
from orchestrator.given import given


def started_again(ledger: Ledger, config: RunConfig) -> Ledger:
    """Slots that were given up or paused get another chance, and so do finished ones that have more to do: a larger
    total, another command or other params. Actors go on in any case: their training may be longer now. Errors: as
    `RunConfig.trained_by`.
    """
    slots = tuple(_again(slot, config) for slot in ledger.slots)
    return ledger.model_copy(update={"slots": slots, "nodes": forgiven(ledger.nodes)})


def _again(slot: Slot, config: RunConfig) -> Slot:
    if slot.index >= config.slots:
        return reactivated(slot, None)
    if (command := config.command_of(slot.index)) is not None:
        return reactivated(slot, None, given(command, config.settings_of(slot.index)))
    if not config.trains:
        return reactivated(slot, None, again=True)
    return reactivated(slot, config.trained_by(slot.index).total_steps)
