"""PyTorch Lightning under Anchorleg: one callback that saves at the hand-over and leaves (docs/programs.md).

It saves a whole checkpoint of Lightning's between two batches or two epochs; what comes at an epoch's end, and a
validation, come first. The next job goes on within the epoch: batches that were done are drawn again in the same order
and left out, since an ordinary `DataLoader` cannot begin in the middle (one with `state_dict` is Lightning's business).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from anchorleg.job import Job
from orchestrator.integrations.checkpointer import RESERVED, Checkpointer
from orchestrator.integrations.rng import random_state, restore_random_state

_MODEL = "model.ckpt"
#: What a training without an end, or without one that is known, reports as its total.
_ENDLESS = 2**53


class HandOver(Callback):
    """`every`: also save after so many steps (of the optimizer), for jobs that are killed. One process a job.

    `ckpt_path`: what `Trainer.fit` is to be given, None at the first time.
    """

    def __init__(self, job: Job, every: int | None = None) -> None:
        self._keeper = Checkpointer(job, total=0, every=every)
        start = self._keeper.start
        self.ckpt_path = str(start.path / _MODEL) if start is not None else None
        self._chance: dict[str, Any] | None = None
        self._chance_of_epoch: dict[str, Any] | None = None
        self._batches = 0
        self._first_epoch = 0

    def state_dict(self) -> dict[str, Any]:
        """The streams of chance, now and where the epoch began, and the batches since then."""
        return {"chance": random_state(), "chance_of_epoch": self._chance_of_epoch, "batches": self._batches}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of the checkpoint that the job goes on from."""
        self._chance, self._chance_of_epoch = state_dict["chance"], state_dict["chance_of_epoch"]
        self._batches = state_dict["batches"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Go on where the job before was in its data and its streams of chance."""
        self._keeper.job.listen()  # Lightning would end with exit code 0 at a SIGTERM
        steps = trainer.estimated_stepping_batches  # -1 where the data do not say how long an epoch is
        self._keeper.total = int(min(steps, _ENDLESS)) if steps >= 0 else _ENDLESS
        self._first_epoch = trainer.current_epoch
        trainer.fit_loop._restarting = False  # noqa: SLF001 - else it leaves schedulers out at the end of this epoch
        if self._batches >= trainer.num_training_batches:
            self._batches = 0
        if self._chance is not None and not self._batches:
            # With `max_steps`, Lightning would go on in the epoch that is over, and with the iterator it has.
            loop = trainer.fit_loop
            loop.epoch_loop._restarting = loop._resuming_from_checkpoint = False  # noqa: SLF001
            return  # on_train_epoch_start brings the streams back
        if self._chance_of_epoch is not None:
            restore_random_state(self._chance_of_epoch)
        self._chance_of_epoch = random_state()
        self._begin_epoch_again(trainer)
        if self._chance is not None:
            restore_random_state(self._chance)

    def _begin_epoch_again(self, trainer: Trainer) -> None:
        """Lightning has made the epoch's iterator already: before anybody could bring the streams back."""
        loop = trainer.fit_loop
        fetcher, loader = loop._data_fetcher, loop._combined_loader  # noqa: SLF001 - there is no other way to them
        if fetcher is None or loader is None or fetcher.length is None:
            return  # of unknown length: Lightning's prefetching has begun
        if all(hasattr(one, "load_state_dict") for one in loader.flattened):
            return
        iter(fetcher)
        for _ in range(self._batches):
            next(fetcher.iterator)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """The last moment before a later epoch's iterator is made, and the first when all of the epoch before is done.

        So it saves and leaves here, too: where each batch is an epoch's last, `on_train_batch_end` never can.
        """
        if trainer.current_epoch > self._first_epoch:
            self._batches, self._chance_of_epoch = 0, random_state()
            self._keeper.tell(_numbers(trainer))
            self._keeper.step_done(trainer.global_step, _between_epochs(trainer))
        elif self._chance is not None and not self._batches:
            restore_random_state(self._chance)
            self._chance_of_epoch = random_state()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:  # noqa: ARG002
        """Save or leave (`Checkpointer.step_done`), but not where something is still to come before the next batch that
        a checkpoint would leave out: a validation, schedulers that wait for it, the module's own end of the epoch.
        """
        loop = trainer.fit_loop.epoch_loop
        self._batches = loop.batch_progress.current.ready
        is_between = not loop.batch_progress.is_last_batch and not loop._should_accumulate()  # noqa: SLF001
        self._keeper.tell(_numbers(trainer))
        if is_between and not loop._should_check_val_fx(trainer.fit_loop._data_fetcher):  # noqa: SLF001
            self._keeper.step_done(trainer.global_step, _writer(trainer))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:  # noqa: ARG002
        """Save the end, also where the training was stopped early."""
        self._keeper.tell(_numbers(trainer))
        self._keeper.finish(trainer.global_step, _writer(trainer))


def _numbers(trainer: Trainer) -> dict[str, Any]:
    """What the module logged (`self.log`), but for names that a report has itself."""
    return {name: value for name, value in trainer.callback_metrics.items() if name not in RESERVED}


def _writer(trainer: Trainer) -> Callable[[Path], None]:
    return lambda folder: trainer.save_checkpoint(folder / _MODEL)


def _between_epochs(trainer: Trainer) -> Callable[[Path], None]:
    """Writes what Lightning reads as a training of whole epochs: it has counted the next one as begun already."""
    counts = trainer.fit_loop.epoch_progress

    def write(folder: Path) -> None:
        counts.total.ready, counts.current.ready = counts.total.ready - 1, counts.current.ready - 1
        trainer.save_checkpoint(folder / _MODEL)
        counts.increment_ready()

    return write
