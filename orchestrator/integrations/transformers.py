"""Hugging Face's `Trainer` under Anchorleg: one callback that has it save at the hand-over, and leaves.

The checkpoints are the `Trainer`'s own, whole: it finds its place in the data again, and its streams of chance. Each
that it writes becomes one of the job's, also those of its `save_strategy`. See docs/programs.md.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from anchorleg.job import Job
from orchestrator.integrations.checkpointer import RESERVED, Checkpointer


class HandOver(TrainerCallback):
    """`every`: also save after so many steps (of the optimizer), for jobs that are killed. One process a job.

    `output_dir`: what `TrainingArguments` is to be given.
    """

    def __init__(self, job: Job, every: int | None = None) -> None:
        self._keeper = Checkpointer(job, total=0, every=every)
        self.output_dir = str(job.attempt_dir / "output")
        self._trainer: Trainer | None = None

    def train(self, trainer: Trainer, **more: Any) -> None:
        """`trainer.train` from where the job before was; nothing but loading where no step is left to do.

        Leaves with exit code 75 (SystemExit) when asked to. Errors: ValueError for `load_best_model_at_end`.
        """
        if trainer.args.load_best_model_at_end:
            raise ValueError(
                "load_best_model_at_end is not supported, because old checkpoints are removed: leave it out, and save "
                "the best model yourself"
            )
        self._trainer = trainer
        start, args = self._keeper.start, trainer.args
        if start is None:
            trainer.train(**more)
            return
        state = TrainerState.load_from_json(str(start.path / "trainer_state.json"))
        epochs_left = args.max_steps <= 0 and state.epoch < args.num_train_epochs
        if epochs_left or state.global_step < args.max_steps:
            trainer.train(resume_from_checkpoint=str(start.path), **more)
        else:  # the Trainer would make one step more
            trainer._load_from_checkpoint(str(start.path))  # noqa: SLF001 - what `train` does with it
            self._keeper.finish(state.global_step, self._take(state.global_step))

    def on_train_begin(self, _args: TrainingArguments, state: TrainerState, *_: Any, **_more: Any) -> None:
        """Now the steps of the whole run are known."""
        self._keeper.total = state.max_steps

    def on_step_end(
        self, _args: TrainingArguments, state: TrainerState, control: TrainerControl, **_more: Any
    ) -> TrainerControl:
        """Have it save where that is due, and at the end."""
        if self._keeper.is_due(state.global_step) or state.global_step >= state.max_steps:
            control.should_save = True
        else:
            self._keeper.report(state.global_step)
        return control

    def on_save(self, _args: TrainingArguments, state: TrainerState, control: TrainerControl, **_more: Any) -> None:
        """Take over what it wrote; then leave if the job was asked to, unless this is the end."""
        self._keeper.save(state.global_step, self._take(state.global_step))
        if not control.should_training_stop:
            self._keeper.step_done(state.global_step, self._take(state.global_step))

    def on_log(self, _args: Any, _state: Any, _control: Any, logs: Any = None, **_more: Any) -> None:
        """What the `Trainer` logs (`loss`, `eval_loss`, …) is in every report."""
        self._keeper.tell({name: value for name, value in (logs or {}).items() if name not in RESERVED})

    def on_train_end(self, _args: TrainingArguments, state: TrainerState, *_: Any, **_more: Any) -> None:
        """Save the end, also where the training was stopped early (`EarlyStoppingCallback`)."""
        self._keeper.finish(state.global_step, self._take(state.global_step))

    def _take(self, step: int) -> Callable[[Path], None]:
        """Moves what the `Trainer` wrote for `step` into a folder; has it write that now if it did not."""
        written = Path(self.output_dir) / f"checkpoint-{step}"

        def take(folder: Path) -> None:
            if self._trainer is not None and not written.exists():  # stopped at a step where no save was due
                self._trainer._save_checkpoint(self._trainer.model, None)  # noqa: SLF001 - there is no other way
            for path in written.iterdir():
                path.rename(folder / path.name)
            written.rmdir()

        return take
