"""The loop of `trainer demos fit`: a program like any that the relay keeps alive, over as many jobs as it takes.

A checkpoint has all that a number depends on: nets, optimizer, random stream, running sums, the best encoder so far. So
interrupted and uninterrupted are the same to the bit, on one processor.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from anchorleg.files import make_folder, read_json, remove_folder, write_bytes, write_json
from anchorleg.job import CheckpointRef, Job, candidates_before
from trainer.algorithms.common.autograd import in_groups
from trainer.algorithms.common.tensors import bare_step, copied, load_moments, moments_of, named, under
from trainer.checkpoints.patience import patiently
from trainer.checkpoints.retention import leftovers
from trainer.errors import DamagedCheckpointError, NoGoodCheckpointError, NotFiniteError, OtherIdentityError, SaveError
from trainer.nets.policy import PolicyNet

_TENSORS, _STATE = "fit.safetensors", "state.json"
#: To walk back to one where the newest is damaged.
_KEEP = 2


class Lesson(Protocol):
    """What is taught, and how: `name`, and `measures`, what `measure` says, in a phrase. `module`: a policy, or what
    reads pictures alone.
    """

    name: str
    measures: str
    module: nn.Module

    @property
    def encoder(self) -> nn.Module | None:
        """The part of `module` that reads pictures, or all of it; None where nothing does."""

    def loss(self, rng: np.random.Generator, rows: int) -> Tensor:
        """Of a batch that `rng` draws."""

    def measure(self) -> float:
        """The loss of what is held out: smaller is better."""

    def leave(self, folder: Path, step: int, tensors: Mapping[str, Tensor]) -> None:
        """Put into `folder` what `module` was, as a policy to play; nothing, where it does not act. Errors: OSError."""


@dataclass(frozen=True)
class FitPlan:
    """How long, and how. `encoder_part`: of the learning rate, what reads pictures learns at. `identity`: digest of all
    that decides the numbers beside steps, batches, rate and seed.
    """

    identity: str
    steps: int
    batch_size: int
    learning_rate: float
    encoder_part: float
    measure_every: int
    seed: int

    @property
    def digest(self) -> str:
        """sha256 (hex): equal means "may be continued". It may be made longer."""
        deciding = [self.identity, self.batch_size, self.learning_rate, self.measure_every, self.seed]
        return hashlib.sha256(json.dumps(deciding).encode()).hexdigest()


@dataclass(frozen=True)
class FitRow:
    """What a stretch came to: mean `loss` of its batches, and `held_out`, the measure behind it."""

    step: int
    loss: float
    held_out: float


@dataclass
class Fit:
    """Where it stands between two steps. `best_module`: what was learned when it measured best."""

    learner: Lesson
    optimizer: torch.optim.Optimizer
    rng: np.random.Generator
    step: int = 0
    total_loss: float = 0.0
    rows: list[FitRow] = field(default_factory=list)
    best_module: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def fresh(cls, learner: Lesson, plan: FitPlan) -> Fit:
        """At the beginning."""
        module = learner.module
        reads = module.encoders if isinstance(module, PolicyNet) else module
        groups = in_groups(list(module.parameters()), (list(reads.parameters()), plan.encoder_part))
        rates = [{**group, "lr": plan.learning_rate * group["part"]} for group in groups]
        optimizer = torch.optim.Adam(rates, plan.learning_rate)
        return cls(learner, optimizer, np.random.default_rng([plan.seed, 0]))

    @property
    def best_row(self) -> FitRow:
        """The row that measured best; of equal ones the first."""
        return min(self.rows, key=lambda row: row.held_out)

    @property
    def best(self) -> dict[str, Tensor]:
        """The encoder that measured best; nothing where there is none."""
        if self.learner.encoder is None:
            return {}
        place = next(name for name, part in self.learner.module.named_modules() if part is self.learner.encoder)
        return under(place, self.best_module) if place else self.best_module

    def advance(self, plan: FitPlan) -> FitRow | None:
        """One step; a row where a stretch is over. Errors: NotFiniteError."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.learner.loss(self.rng, plan.batch_size)
        loss.backward()  # type: ignore[no-untyped-call]
        bare_step(self.optimizer)
        self.step += 1
        self.total_loss += float(loss.detach())
        if not math.isfinite(self.total_loss):
            raise NotFiniteError(
                f"the loss of step {self.step:,} is not finite: a smaller --learning-rate",
                what=["loss"],
                update=self.step,
            )
        return self.measure() if self.step % plan.measure_every == 0 or self.step == plan.steps else None

    def measure(self) -> FitRow:
        """The row of the stretch that is over. At the beginning, too: what learned nothing may stay the best."""
        steps = self.step - self.rows[-1].step if self.rows else 0
        row = FitRow(self.step, self.total_loss / steps if steps else math.nan, self.learner.measure())
        self.rows.append(row)
        self.total_loss = 0.0
        if self.best_row is row:
            self.best_module = copied(self.learner.module.state_dict())
        return row

    def write(self, folder: Path, plan: FitPlan) -> None:
        """All of it. Errors: OSError."""
        tensors = {
            **named("net", copied(self.learner.module.state_dict())),
            **copied(moments_of("fit", self.optimizer)),
            **named("best", self.best_module),
        }
        data = safetensors.torch.save(tensors)
        rows = [[row.step, None if math.isnan(row.loss) else row.loss, row.held_out] for row in self.rows]
        state = {
            "plan": plan.digest,
            "sha256": hashlib.sha256(data).hexdigest(),
            "step": self.step,
            "total_loss": self.total_loss,
            "rng": self.rng.bit_generator.state,
            "rows": rows,
        }
        write_bytes(folder / _TENSORS, data)
        write_json(folder / _STATE, state)
        self.learner.leave(folder, self.step, self.best_module)

    def load(self, ref: CheckpointRef, plan: FitPlan) -> None:
        """Go on from there. Errors: DamagedCheckpointError; OtherIdentityError."""
        state, tensors = _read(ref.path)
        if state["plan"] != plan.digest:
            raise OtherIdentityError(
                f"{ref.path} was fitted with other settings or demonstrations: use the old ones, or another --run-dir"
            )
        try:
            self.learner.module.load_state_dict(under("net", tensors))
            load_moments("fit", self.optimizer, tensors)
            self.rng.bit_generator.state = state["rng"]
            self.rows = [FitRow(step, math.nan if loss is None else loss, held) for step, loss, held in state["rows"]]
            self.step, self.total_loss = int(state["step"]), float(state["total_loss"])
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise DamagedCheckpointError(f"{_STATE} or {_TENSORS} is of another version ({error})") from None
        self.best_module = under("best", tensors)


def run(
    job: Job,
    learner: Lesson,
    plan: FitPlan,
    show: Callable[[FitRow], None],
    say: Callable[[str], None],
    pause: Callable[[float], None] = time.sleep,
) -> Fit | None:
    """Fit until the last step (what came of it), or until the job must hand over (None: exit with 75).

    Errors: NoGoodCheckpointError; UnreadCheckpointError; OtherIdentityError; NotFiniteError; SaveError; SystemExit(75)
    where a newer attempt has taken over.
    """
    fit = Fit.fresh(learner, plan)
    start = _start(job, fit, plan, say, pause)
    make_folder(job.attempt_dir)
    job.start_from(start)
    if start is None:
        show(fit.measure())
    first = fit.step
    try:
        while fit.step < plan.steps:
            row = fit.advance(plan)
            leaves = fit.step < plan.steps and job.hand_over_reason() is not None
            if row is not None or leaves:
                job.save_checkpoint(fit.step, lambda folder: fit.write(folder, plan))
                _tidy(job)
                _report(job, fit, plan)
            if row is not None:
                show(row)
            if leaves:
                say(f"handed over at step {fit.step:,}")
                return None
        if first == fit.step:
            say(f"nothing left to do: {fit.step:,} of {plan.steps:,} steps are done")
            _report(job, fit, plan)
    except OSError as error:
        place = error.filename or job.attempt_dir
        raise SaveError(f"{place}: {error.strerror or error}; the last checkpoint is untouched") from error
    return fit


def _start(
    job: Job, fit: Fit, plan: FitPlan, say: Callable[[str], None], pause: Callable[[float], None]
) -> CheckpointRef | None:
    damaged: list[str] = []
    for ref in job.candidates():
        try:
            patiently(ref, partial(fit.load, ref, plan), pause)
        except DamagedCheckpointError as error:
            damaged.append(f"step {ref.step} of attempt {ref.attempt} ({error})")
            continue
        if damaged:
            say(f"damaged, not used: {'; '.join(damaged)}")
        say(f"attempt {job.attempt}: going on at step {ref.step:,} of attempt {ref.attempt}")
        return ref
    if damaged:
        raise NoGoodCheckpointError(f"no checkpoint under {job.slot_dir} can be loaded: {'; '.join(damaged)}")
    return None


def _tidy(job: Job) -> None:
    """Older checkpoints go, and what a job that was killed left of one. Errors: OSError."""
    older = [ref.path for ref in candidates_before(job.slot_dir, job.attempt + 1)][_KEEP:]
    for path in (*leftovers(job, set()), *older):
        if job.superseded_by() is None:
            remove_folder(path)


def _report(job: Job, fit: Fit, plan: FitPlan) -> None:
    """Where it stands, as it is saved. Errors: OSError."""
    best = fit.best_row
    numbers: Mapping[str, Any] = {"held_out": fit.rows[-1].held_out, "best": best.held_out, "best_step": best.step}
    job.report(step=fit.step, total=plan.steps, checkpoint_step=fit.step, **numbers)


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Errors: DamagedCheckpointError."""
    try:
        state: dict[str, Any] = read_json(folder / _STATE)
        data = (folder / _TENSORS).read_bytes()
        if hashlib.sha256(data).hexdigest() != state["sha256"]:
            raise DamagedCheckpointError(f"{_TENSORS} is not what was written (sha256 differs)")
        return state, safetensors.torch.load(data)
    except OSError as error:
        raise DamagedCheckpointError(f"{error.filename}: {error.strerror}") from error
    except (KeyError, TypeError, ValueError, safetensors.SafetensorError) as error:
        raise DamagedCheckpointError(f"{_STATE} or {_TENSORS} is torn ({error})") from None
