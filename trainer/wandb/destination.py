"""Where a slot's curves go on Weights & Biases, and whether they go there while it trains. No wandb is needed for it.

What was asked for comes to a job in W&B's own variables (`trainer.config.wandb`), so that a program of the user's that
uses wandb itself is told the same. Its attempt writes it down, for whoever sends the curves afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from anchorleg.files import read_json_or_none, write_json
from anchorleg.job import Job, attempt_numbers, lineage
from anchorleg.rollback import rollbacks

#: The project's name on W&B where nobody gives one.
PROJECT = "anchorleg"
#: In the folder of each attempt of which W&B was asked for something.
FILE = "wandb.json"


@dataclass(frozen=True)
class Destination:
    """A place on W&B. `entity` None: whose the key is. `group` None: the run's id. `returns`: how often the slot had
    gone back to an older checkpoint on purpose: what it learns from then on is another curve.
    """

    project: str = PROJECT
    entity: str | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    returns: int = 0

    def of_slot(self, run_id: str, slot: int) -> dict[str, Any]:
        """What `wandb.init` is told of a slot's run here, however its curves come there."""
        name = name_of_slot(run_id, slot, self.returns)
        return {
            "id": name,
            "name": name,
            "group": self.group or run_id,
            "project": self.project,
            "entity": self.entity,
            "tags": self.tags or None,
        }

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Destination:
        """As `WANDB_PROJECT`, `WANDB_ENTITY`, `WANDB_RUN_GROUP` and `WANDB_TAGS` say; an empty one says nothing."""
        return cls(
            project=environ.get("WANDB_PROJECT") or PROJECT,
            entity=environ.get("WANDB_ENTITY") or None,
            group=environ.get("WANDB_RUN_GROUP") or None,
            tags=tuple(tag.strip() for tag in environ.get("WANDB_TAGS", "").split(",") if tag.strip()),
        )


def of_job(job: Job, environ: Mapping[str, str]) -> Destination:
    """Where this job's curves go. Errors: OSError; ValueError for a damaged decision to go back."""
    return replace(Destination.from_environment(environ), returns=_returns(job.slot_dir, job.attempt))


def name_of_slot(run_id: str, slot: int, returns: int = 0) -> str:
    """The id of a slot's run on W&B: the same for all its jobs until it goes back, sent live or afterwards."""
    return f"{run_id}-{slot}" + (f"-back{returns}" if returns else "")


def write_down(destination: Destination, attempt_dir: Path) -> None:
    """For `recorded`. Errors: OSError."""
    write_json(attempt_dir / FILE, asdict(destination))


def recorded(slot_dir: Path) -> Destination:
    """Where the curves of the slot's newest line of attempts go, as the newest attempt of which W&B was asked for
    something was told. Errors: OSError; ValueError for a damaged file.
    """
    line = lineage(slot_dir)
    returns = _returns(slot_dir, line[-1].attempt) if line else 0
    for number in reversed(attempt_numbers(slot_dir)):
        value: dict[str, Any] | None = read_json_or_none(slot_dir / "attempts" / str(number) / FILE)
        if value is not None:
            return Destination(value["project"], value["entity"], value["group"], tuple(value["tags"]), returns)
    return Destination(returns=returns)


def _returns(slot_dir: Path, attempt: int) -> int:
    """How often the slot had gone back when this attempt began: later decisions are its successors'."""
    return sum(decision.attempt < attempt for decision in rollbacks(slot_dir))
