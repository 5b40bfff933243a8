"""One connection to W&B for one run, with wandb's own library. Nothing else of this package loads it.

The server is the only memory of what was sent: a connection begins with what the run there has, so a job that died, a
row that was lost on the way and a second connection need no records of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainer.errors import ConfigError
from trainer.wandb.points import Cursor, Point, define_axes, numbered
from trainer.wandb.request import UploadRequest
from trainer.wandb.upload import library, quiet

#: How wandb 0.31 says that a server takes requests and does not answer them, or only with errors that may pass (500).
_SILENCE = ("did not respond in time", "deadline exceeded", "timed out")


class LostError(Exception):
    """The server did not answer, or refused; the sentence goes into another one."""


class HopelessError(Exception):
    """Nothing will ever be sent from here, and why; the sentence goes into another one."""


class UploadSession:
    """The run on W&B, open. `cursor`: what it has, and what was sent to it since.

    Errors: LostError; HopelessError where wandb or its key is missing.
    """

    def __init__(self, request: UploadRequest) -> None:
        try:
            wandb = library()
        except ConfigError as error:
            raise HopelessError(str(error)) from None
        patience = request.patience
        settings = quiet(
            wandb,
            init_timeout=2 * patience.request_s,
            finish_timeout=patience.flush_s,
            finish_timeout_raises=True,
            x_file_stream_transmit_interval=patience.transmit_s,
            x_file_stream_timeout_seconds=patience.request_s,
            x_file_stream_retry_wait_max_seconds=max(1, int(patience.stuck_s / 3)),
            x_graphql_timeout_seconds=patience.request_s,
        )
        try:
            self._run: Any = wandb.init(
                mode="online",
                resume="allow",
                dir=str(request.folder),
                config=dict(request.training),
                settings=settings,
                **request.destination.of_slot(request.run_id, request.slot),
            )
            define_axes(self._run)
            self.cursor = Cursor.of(dict(self._run.summary))
        except (wandb.errors.UsageError, ValueError, TypeError) as error:
            raise HopelessError(_words(error)) from None
        except Exception as error:  # what it raises where its service dies is not its own Error
            raise LostError(_words(error)) from error
        self._wandb = wandb
        self._timeout_s = patience.request_s
        self._path = f"{self._run.entity}/{self._run.project}/{self._run.id}"
        self._next = self._run.starting_step

    @property
    def url(self) -> str:
        """The run's page."""
        return str(self._run.url or self._path)

    def send(self, lines: Sequence[Point]) -> None:
        """Hand them to wandb, which sends them when it can. Errors: LostError where it is gone."""
        try:
            for number, values in numbered(lines, self._next):
                self._run.log(values, step=number, commit=True)
                self._next = number + 1
        except Exception as error:
            raise LostError(_words(error)) from error
        for point in lines:
            self.cursor = self.cursor.after(point)

    def arrived(self) -> Cursor:
        """What the server has. Errors: LostError."""
        try:
            # A new one each time: it checks the key first, and remembers no answer.
            found = self._wandb.Api(timeout=self._timeout_s).run(self._path)
            return Cursor.of(dict(found.summary))
        except Exception as error:
            raise LostError(_words(error)) from error

    def close(self) -> None:
        """Send what is under way, for `flush_s` at most, and let the run be finished until the next job.

        Errors: LostError where that was not enough.
        """
        try:
            self._run.finish(exit_code=0)
        except Exception as error:
            raise LostError(_words(error)) from error
        self._wandb.teardown()


def _words(error: BaseException) -> str:
    """The first line of what it says, cut to the length of a log's line; of a silent or failing server in ours."""
    if any(words in str(error) for words in _SILENCE):
        return "no proper answer from the server in time"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:200].rstrip(".")
