"""What the controller needs of a place where jobs run. An executor reports and never decides; three answers are apart:

* a `Poll` without `error` is a complete list: a job that is not in it has left the queue (which is not yet "ended");
* a `Poll` with `error` says nothing about any job. It never means that nothing runs;
* `Uncertain` says that a submission may have been accepted. It never means that it failed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Any, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from pydantic_core import PydanticSerializationError

from anchorleg.words import on_one_line
from orchestrator.disk import is_same_folder

#: The name of one submission, and of its job folder: slot, attempt, and 8 digits by chance.
TOKEN = re.compile(r"s(\d+)-a(\d+)-[0-9a-f]{8}\Z")


class Frozen(BaseModel):
    """Base of the facts: immutable, no unknown fields. A `cached_property` of one is not its copy's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """pydantic's, which would hand on what was worked out from fields that `update` changes."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - self.__pydantic_fields__.keys():
            del copied.__dict__[name]
        return copied

    def model_dump_json(self, *, indent: int | None = None, **options: Any) -> str:
        """pydantic's, which has no text for a file's name that is no UTF-8: then Python's own."""
        try:
            return super().model_dump_json(indent=indent, **options)
        except PydanticSerializationError:
            return json.dumps(self.model_dump(mode="json", **options), indent=indent)

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **options: Any) -> Self:
        """pydantic's, which reads no such name either."""
        try:
            return super().model_validate_json(json_data, **options)
        except ValidationError as error:
            try:
                value = json.loads(json_data)
            except ValueError:
                raise error from None
        return cls.model_validate(value, **options)


class View(Frozen):
    """Base of what screens show: each of its texts is one line, also where it is foreign."""

    _texts_have_one_line = field_validator("*")(on_one_line)


class JobState(StrEnum):
    """What a job's state means to us. Scheduler states that nobody knows are UNKNOWN, which is not terminal."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"
    ENDED = "ended"
    UNKNOWN = "unknown"


class JobLook(Frozen):
    """What a scheduler shows of a job, as the ledger keeps it, in its own words. Times are unix seconds. `partition`:
    of a waiting job all that it was given, with commas between.
    """

    state: JobState
    raw_state: str
    reason: str = ""
    partition: str = ""
    node: str = ""
    started_at: float | None = None
    ends_at: float | None = None


class JobRow(JobLook):
    """One job as the scheduler shows it."""

    job_id: str
    work_dir: str
    submitted_at: float | None = None
    exit_code: int | None = None


def jobs_of_run(found: Iterable[tuple[JobRow, str]]) -> tuple[tuple[JobRow, ...], tuple[JobRow, ...]]:
    """(`Poll.rows`, `Poll.elsewhere`) of jobs, each with the folder of its name in the run's `jobs/`: a run may be
    moved or copied, and mounted under several names.
    """
    rows, elsewhere = [], []
    for row, here in found:
        same = is_same_folder(row.work_dir.rstrip("/"), here)
        if same is not False:
            rows.append(row if row.work_dir == here else row.model_copy(update={"work_dir": here}))
        if not same and row.state is not JobState.ENDED:
            elsewhere.append(row)
    return tuple(rows), tuple(elsewhere)


class JobRows(Frozen):
    """Jobs, found by their work folder."""

    rows: tuple[JobRow, ...] = ()

    @cached_property
    def by_folder(self) -> dict[str, JobRow]:
        """Work folder → row. Should an id run twice, the row that is not over counts."""
        found: dict[str, JobRow] = {}
        for row in self.rows:
            folder = row.work_dir.rstrip("/")
            if folder not in found or (found[folder].state is JobState.ENDED and row.state is not JobState.ENDED):
                found[folder] = row
        return found

    @cached_property
    def alive(self) -> dict[str, JobRow]:
        """Last part of the work folder → row, of the jobs that are not over."""
        return {
            folder.rpartition("/")[2]: row for folder, row in self.by_folder.items() if row.state is not JobState.ENDED
        }

    def of(self, job_dir: str) -> JobRow | None:
        """The job whose work folder this is."""
        return self.by_folder.get(job_dir)


class Poll(JobRows):
    """The answer to one "what is there?". `rows`: the run's jobs, each with its folder in the run's `jobs/`; `others`:
    the user's other live jobs (they count against the same limits). With `error` set the rest is meaningless.
    `elsewhere`: live jobs whose own folder is not that one. Where their folder is gone, the run was moved under them,
    and they are in `rows`, too; where it is there, the run is a copy, and they are none of its own.
    """

    at: float
    others: int = 0
    elsewhere: tuple[JobRow, ...] = ()
    error: str | None = None


class Accounting(JobRows):
    """The history's answer. `disabled`: the site keeps none, which is a supported way to live."""

    at: float
    status: Literal["ok", "disabled", "blind"]
    error: str | None = None


class JobRequest(Frozen):
    """One job to submit. `job_dir`, absolute, is the working folder that identifies the submission. `after`: start only
    once this job is over, however it ended. `exclude`: nodes to avoid, beside the config's own. `places`: options of
    sbatch for each place where it may start, of which the soonest counts. `slot`, `gpus`: for an executor that hands
    out GPUs itself (None: the job sees them all); Slurm reads that in the script.
    """

    job_dir: str
    script: str
    after: str | None = None
    exclude: tuple[str, ...] = ()
    places: tuple[tuple[str, ...], ...] = ()
    slot: int = 0
    gpus: int | None = None


class Submitted(Frozen):
    """Accepted, with an id. `place`: its number among those of the request."""

    job_id: str
    place: int = 0


class Uncertain(Frozen):
    """No readable answer: it may have been accepted. Look for the working folder before anything else. `silent`: the
    scheduler did not answer at all, and another try now would wait as long.
    """

    why: str
    silent: bool = False


class SubmitRefused(Frozen):
    """Certainly not accepted. `kind`: permanent (the request is wrong), quota (wait), temporary (try again)."""

    kind: Literal["permanent", "quota", "temporary"]
    words: str


SubmitOutcome = Submitted | Uncertain | SubmitRefused


class Executor(Protocol):
    """A place where jobs run. Every method returns within a bounded time and raises nothing for outages."""

    name: str
    #: After this, a submission that neither the queue nor the history knows was never accepted.
    submit_grace_s: float
    #: Whether `JobRequest.after` is honoured. Where it is not, no job is ever queued ahead.
    queues_behind: bool
    #: Whether `JobRequest.exclude` is honoured. Where it is not, no node is accused of anything.
    avoids_nodes: bool

    def submit(self, request: JobRequest) -> SubmitOutcome:
        """Hand one job over."""

    def poll(self) -> Poll:
        """All jobs of this run that the scheduler still remembers."""

    def accounting(self, since: float) -> Accounting:
        """Jobs of this run submitted since `since` (unix seconds), ended ones included."""

    def wake(self, job_ids: list[str]) -> str | None:
        """Send SIGUSR2 to the batch process of each. Returns what went wrong, None if nothing did."""

    def is_free(self, request: JobRequest, place: int) -> bool:
        """Whether the job would begin at once in another of its places than `place`."""

    def cancel(self, job_ids: list[str], *, waiting: bool = False) -> str | None:
        """SIGTERM, later SIGKILL; with `waiting` to jobs that have not begun only. Unknown, ended ids are no error."""

    def forget_after_s(self) -> float:
        """How long after its end a job stays in `poll` at least (Slurm's MinJobAge, 300 s by default)."""
