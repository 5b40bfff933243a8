"""The loop of one attempt: train, save, hand over or finish. It knows no feature (`trainer.training.features`).

Order within a vector step: act, learn while the environments step, remember; then what is due of the features, the row
of metrics and the checkpoint. Only the steps decide what is due, so an interrupted run does the same at the same
places. A hand-over saves wherever it is, and changes nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anchorleg.job import HANDED_OVER
from anchorleg.rollback import rollbacks
from trainer.checkpoints.saver import unwritten
from trainer.errors import NotFiniteError, SaveError, SupersededError
from trainer.training.features.base import TRAINING, EndReason, Feature, RunningAttempt
from trainer.training.run import Order, advance, capture, learn_the_rest, row

#: The exit code of an attempt → why it ended.
_REASONS = {0: EndReason.FINISHED, HANDED_OVER: EndReason.HANDED_OVER}


@dataclass
class Loop:
    """`numeric`: the choices that bit equality also depends on."""

    run: RunningAttempt
    numeric: Mapping[str, Any]
    _last_words: str = ""

    def to_the_end(self) -> int:
        """Train to the last step, or to the hand-over. Returns the exit code.

        Errors: NotFiniteError; SaveError where the last checkpoint cannot be written; EnvError.
        """
        run, code, begun = self.run, -1, list[Feature]()
        try:
            for feature in run.features:
                feature.begin(run)
                begun.append(feature)
            code = self._train()
        except SupersededError as stop:
            self._last_words, code = str(stop), HANDED_OVER
        except NotFiniteError as error:
            with contextlib.suppress(SupersededError):
                self._count_published()  # so that the newest checkpoint is known
            raise self._diverged(error) from error
        finally:
            run.saver.close()
            for feature in begun:
                feature.end(run, _REASONS.get(code, EndReason.FAILED))
                feature.tell(run.say)
        if self._last_words:
            run.say(self._last_words)
        return code

    def _diverged(self, error: NotFiniteError) -> NotFiniteError:
        """`error` with the checkpoint from before it, from which the same steps come again, and what to do."""
        step = self.run.saver.published_step
        about: dict[str, Any] = {"what": error.what, "update": error.update, "checkpoint_step": step}
        return NotFiniteError("learning.diverged-unsaved" if step is None else "learning.diverged", why=error, **about)

    def _train(self) -> int:
        run, state = self.run, self.run.state
        while not run.is_trained and run.job.hand_over_reason() is None:
            run.before = state.step
            state.group.tell(Order.ADVANCE)
            transition = advance(state)
            for feature in run.features:
                feature.after_step(run, transition)
            if run.ends_unsaved:
                self._count_published()
                return HANDED_OVER
            self._do_what_is_due()
        if run.is_trained:
            self._secure()
            self._wait()
            if all(feature.is_complete(run) for feature in run.features):
                return self._finish()
        return self._hand_over()

    def _do_what_is_due(self) -> None:
        run, training = self.run, self.run.training
        if run.is_trained:
            learn_the_rest(run.state, self._look_around)
        for feature in run.features:
            if feature.is_due(run):
                feature.act(run)
        if run.is_at(training.metrics_interval):
            self._write_row()
        if run.is_at(training.checkpoint_interval):
            self._save()
            self._wait()
        self._look_around()

    def _write_row(self) -> None:
        self.run.state.group.tell(Order.ROW)
        value = row(self.run.state)
        for feature in self.run.features:
            feature.on_row(self.run, value)

    def _save(self) -> bool:
        """Begin to publish the present state. False: it failed at once, and the user was told."""
        run = self.run
        self._count_published()
        run.state.group.tell(Order.CAPTURE)
        numbers = {name: value for feature in run.features for name, value in feature.state().items()}
        contents = capture(run.state, self.numeric, numbers)
        try:
            rows = run.saver.unsaved(run.state.experience)
            self._flush()
        except OSError as error:
            run.say(str(unwritten(run.state.step, run.job, error)))
            return False
        run.saver.start(contents, rows, run.kept_steps)
        return True

    def _flush(self) -> None:
        """What a checkpoint leaves behind is on the disk before it is: nobody writes that again. Errors: OSError."""
        for feature in self.run.features:
            feature.before_save(self.run)

    def _count_published(self) -> None:
        """Count in the publication under way; where it failed, the user is told."""
        try:
            self._count_in()
        except SaveError as error:
            self.run.say(str(error))

    def _count_in(self) -> None:
        saver = self.run.saver
        before = saver.published_step
        saver.finish(self.run.say)
        if saver.published_step is not None and saver.published_step != before:
            for feature in self.run.features:
                feature.on_checkpoint(saver.published_step)

    def _look_around(self) -> None:
        if self.run.saver.is_done:
            self._count_published()
        self.run.look()

    def _wait(self) -> None:
        """While a feature must not fall behind further, until the job must hand over."""
        run = self.run
        self._look_around()
        while any(feature.waits(run) for feature in run.features) and run.job.hand_over_reason() is None:
            run.state.group.tell(Order.WAIT)  # so that no rank takes this one for lost
            self._look_around()
        run.doing = TRAINING

    def _secure(self) -> None:
        """The present step is published when this returns; one that failed is tried once more. Errors: SaveError."""
        run = self.run
        self._count_published()
        if run.saver.published_step != run.state.step:
            if not self._save():
                raise SaveError("save.nothing-newer", step=run.state.step)
            self._count_in()
        try:
            self._flush()
        except OSError as error:
            raise unwritten(run.state.step, run.job, error) from error

    def _finish(self) -> int:
        """The run is complete: 0; or 75 where somebody decided meanwhile that it goes back. Errors: SaveError where its
        last checkpoint cannot be written.
        """
        self._secure()
        run, state = self.run, self.run.state
        with contextlib.suppress(OSError, ValueError):  # the next one that reads a damaged decision says so
            if any(back.hides(run.job.attempt, state.step) for back in rollbacks(run.job.slot_dir)):
                self._last_words = "not complete: the next job goes back to an older checkpoint, as requested"
                return HANDED_OVER
        self._last_words = f"complete: {state.step:,} steps, {state.updates:,} updates; files in {run.job.slot_dir}"
        return 0

    def _hand_over(self) -> int:
        """Save where it stands. Errors: SaveError."""
        run = self.run
        reason = run.job.hand_over_reason() or ("its last evaluation is missing" if run.is_trained else "asked to")
        run.doing, run.is_ending = f"handing over ({reason})", True
        self._secure()
        self._last_words = f"handed over at step {run.state.step:,} ({reason})"
        return HANDED_OVER
