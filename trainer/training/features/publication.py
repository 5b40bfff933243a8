"""Policies for other machines, published while the training goes on (`trainer.sharing.publisher`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trainer.history.read import read_evaluations
from trainer.sharing.publisher import Publisher, Snapshot, snapshot
from trainer.training.features.base import EndReason, Feature, RunningAttempt
from trainer.training.run import crossed


class Publication(Feature):
    """The first policy at once, then one each `publish_interval` updates, and those of checkpoints."""

    def begin(self, run: RunningAttempt) -> None:
        def on_version(attempt: int, seq: int, step: int) -> None:
            for feature in run.features:
                feature.on_version(attempt, seq, step)

        past = read_evaluations(run.job.slot_dir)
        self._publisher = Publisher(
            run.job,
            run.training,
            evaluation=past[-1] if past else None,
            evaluation_averaged=next((row for row in reversed(past) if "averaged" in row), None),
            on_version=on_version,
        )
        self._evaluated_step = past[-1]["step"] if past else None
        self._updates = run.state.updates
        self._publisher.offer(_policy(run))  # so that nobody waits for the first interval

    def is_due(self, run: RunningAttempt) -> bool:
        return crossed(self._updates, run.state.updates, run.training.publish_interval)

    def act(self, run: RunningAttempt) -> None:
        self._updates = run.state.updates
        self._publisher.offer(_policy(run))

    def on_evaluation(self, run: RunningAttempt, row: Mapping[str, Any]) -> None:
        self._evaluated_step = row["step"]
        self._publisher.evaluated(row)

    def before_save(self, run: RunningAttempt) -> None:
        self._publisher.hold(_policy(run))

    def on_checkpoint(self, step: int) -> None:
        self._publisher.release(step)

    def tell(self, say: Callable[[str], None]) -> None:
        self._publisher.tell(say)

    def end(self, run: RunningAttempt, reason: EndReason) -> None:
        if reason is EndReason.FINISHED:
            if self._evaluated_step == run.state.step:  # now with its score
                is_own = run.start is None or run.start.ref.step < run.state.step
                self._publisher.offer(replace(_policy(run), checkpoint_step=run.state.step if is_own else None))
            self._publisher.complete()
            run.doing = "clearing away old policies"
        self._publisher.close(beat=run.look)


def _policy(run: RunningAttempt) -> Snapshot:
    state = run.state
    return snapshot(state.step, state.updates, state.algorithm.policy, state.average)
