"""What the server, the export and the lines in a terminal need of a source, and nothing more."""

from __future__ import annotations

from typing import Protocol

from viewer.model import Kind, PageSnapshot, ViewChoice


class ViewSource(Protocol):
    """Reads, and writes nothing. One thread uses it. `place`: what is shown, as a person would name it."""

    kind: Kind
    place: str

    @property
    def port(self) -> int | None:
        """The port that the run's settings name for its page; None: they name none, or it is not one run."""
        ...

    def look(self, choice: ViewChoice, now: float) -> PageSnapshot:
        """What there is to see at `now` (unix seconds). What cannot be read is said in the snapshot, never raised."""
        ...
