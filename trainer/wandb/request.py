"""What the learner tells the process that sends its curves: one file of JSON, with no secret in it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from anchorleg.files import write_json
from anchorleg.job import Job
from trainer.wandb.destination import Destination

#: In `UploadRequest.folder`.
FILE = "request.json"


@dataclass(frozen=True)
class Patience:
    """How long is waited for what. The training never waits for any of it but `flush_s`, at the end of its job."""

    #: The journals are looked at this often.
    look_s: float = 2.0
    #: Rows are sent in one request this often; each shows on W&B that much later. wandb takes whole seconds: 0.5 is 0
    #: to it, and then it sends nothing before the end.
    transmit_s: int = 5
    #: One request to the server. wandb's own default is three minutes.
    request_s: float = 20.0
    #: While something is under way the server is asked this often what has arrived. Silent twice, it is lost.
    check_s: float = 30.0
    #: A server that answers, and has nothing new for so long, will get nothing more through this connection: wandb
    #: gives a run up for good at the first 401 or 403. Longer than its own pauses between two tries (20 s).
    stuck_s: float = 60.0
    #: The first pause before another connection is tried; each further one is twice as long.
    retry_s: float = 5.0
    #: The longest one. A server that was away for an hour has the curves this much later.
    longest_retry_s: float = 120.0
    #: At the end of the job, for what is under way.
    flush_s: float = 4.0


@dataclass(frozen=True)
class UploadRequest:
    """`folder`: for whatever wandb writes, removed at the end. `training`: the resolved section, shown as the config.
    `learner`: the process id of who asks.
    """

    learner: int
    run_dir: Path
    slot: int
    attempt: int
    run_id: str
    folder: Path
    destination: Destination
    training: Mapping[str, Any]
    patience: Patience

    @classmethod
    def of(
        cls, job: Job, folder: Path, destination: Destination, training: Mapping[str, Any], patience: Patience
    ) -> UploadRequest:
        """The caller's, for its job."""
        return cls(os.getpid(), job.run_dir, job.slot, job.attempt, job.run_id, folder, destination, training, patience)

    @property
    def job(self) -> Job:
        """The attempt, to be looked at."""
        return Job(self.run_dir, self.slot, self.attempt, run_id=self.run_id)

    def write(self) -> Path:
        """The file, in `folder`. Errors: OSError."""
        value = asdict(self) | {"run_dir": str(self.run_dir), "folder": str(self.folder)}
        write_json(self.folder / FILE, value)
        return self.folder / FILE

    @classmethod
    def read(cls, path: Path) -> UploadRequest:
        """As `write` left it. Errors: OSError."""
        value = json.loads(path.read_text(encoding="utf-8"))
        there = value["destination"]
        return cls(
            learner=value["learner"],
            run_dir=Path(value["run_dir"]),
            slot=value["slot"],
            attempt=value["attempt"],
            run_id=value["run_id"],
            folder=Path(value["folder"]),
            destination=Destination(**{**there, "tags": tuple(there["tags"])}),
            training=value["training"],
            patience=Patience(**value["patience"]),
        )
