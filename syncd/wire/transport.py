"""What every transport can do: list what the other side offers, fetch it, send segments, wait for news.

Paths are relative to `$SHARED`, with `/`: `v1/runs/<run>/<slot>/LATEST.json`. One thread uses a transport.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from syncd.wire.protocol import Standing
from syncd.wire.viewing import Viewing

#: What a mirror takes (`syncd.laptop.capacity`), and so a transport keeps. A queue of 2,000 experiments, twice.
MAX_SLOTS = 4_000
#: 4,000 slots with three policies each and ten parts of curves have 80,000.
MAX_FILES = 200_000
#: Of the curves of all slots: 34 with 20,000 rows each have 1.1 GB on MT10, and 4.3 on MT50.
MAX_CURVES_BYTES = 4 * 2**30


@dataclass(frozen=True)
class Offer:
    """One file of the other side: a manifest (the newest of its slot), a file of metrics, or a blob, which is no news:
    its manifest names it.

    `sha256` is the hex sum of the content; None where nobody knows it beforehand (metrics; what comes by rsync).
    """

    path: str
    bytes: int
    sha256: str | None
    kind: Literal["manifest", "blob", "metrics"]


@dataclass(frozen=True)
class SegmentVerdict:
    """What the learner said of one segment. `reason` is "" where it was accepted."""

    sha256: str
    accepted: bool
    reason: str


@dataclass(frozen=True)
class Receipt:
    """What the inbox said of one segment that was sent.

    `stored`: it lies there durably (or did already). Else `reason`, and when to try again (None: never). `sentence`:
    the other side's own words, printable; "": it said none.
    """

    stored: bool
    reason: str = ""
    retry_after_s: float | None = None
    sentence: str = ""


@dataclass(frozen=True)
class News:
    """What changed: the newest offers of each changed slot, and verdicts on our segments. Empty: nothing did.

    `left_out`: of what there is more than a transport keeps, as a sentence; "": all of it is told.
    """

    offers: tuple[Offer, ...] = ()
    verdicts: tuple[SegmentVerdict, ...] = ()
    left_out: str = ""


@dataclass(frozen=True)
class ConnectionFacts:
    """What a transport can tell of its connection, for `status`.

    `bytes_in`, `bytes_out`: what it read and wrote so far. `rtt_s`: of the last ping. `clock_offset_s`: the other
    side's clock minus ours. `contributor`: the inbox that is ours over there. `logins`: how many logins it took.
    `version`: of Anchorleg over there. `standing`: how we stand with the folder's owner. `spread_s`: over how long its
    clients come back when they lose it at once. `polls_because`: why the other side looks for news again and again;
    "": its disk tells it of them. None: not known.
    """

    bytes_in: int = 0
    bytes_out: int = 0
    rtt_s: float | None = None
    clock_offset_s: float | None = None
    contributor: str | None = None
    logins: int = 0
    version: str | None = None
    standing: Standing | None = None
    spread_s: float = 0.0
    polls_because: str | None = None


class Transport(Protocol):
    """A connection to one `$SHARED`. Every call may raise `UnreachableError`, after which the transport is closed.

    A transport whose other side has no inbox for us (pull only) answers `send` with a Receipt that says so.
    """

    name: str
    """openssh, paramiko or local."""
    chosen_because: str
    """Why it is this one, for people; "" where nobody chose."""
    tick: Callable[[], None]
    """Called by whoever waits in here for the other side, every few seconds. It does nothing until somebody sets it."""
    live: Viewing
    """Agents at play."""

    def listing(self) -> News:
        """Everything on offer now: the newest manifest of every slot, all metrics (unless more of them come),
        verdicts that nobody has counted.
        """
        ...

    def wait(self, timeout_s: float) -> News:
        """Until something changed since the last `listing` or `wait`, or the time is over (then empty).

        Verdicts are told at least once, until they are `counted`.
        It returns within milliseconds of a change that the server saw.
        """
        ...

    def counted(self, verdicts: Sequence[SegmentVerdict]) -> None:
        """These are counted here, durably: the other side may forget them, and hears so with the next `wait` or
        `close`. Never raises.
        """
        ...

    def interrupt(self) -> None:
        """End the `wait` under way, or the next one, at once. For any thread; never raises."""
        ...

    def fetch(self, offer: Offer, part: Path) -> None:
        """Bring the offered file to `part`, going on where `part` ends if it exists already. Fsynced at the end.

        The caller verifies it and renames it. Errors: UnreachableError (the part stays), StorageError, GoneError
        where it is gone since (the transport lives on; the caller lists again), ChangedError where it is another one by
        now (the caller may wait for the next news of a curve).
        A part that is longer than the file, or one of metrics, begins anew.
        """
        ...

    def send(self, segments: Sequence[tuple[Path, str, int]]) -> list[Receipt]:
        """Bring segments (file, run id, slot) to the own inbox, in order; the file's name is its sha256."""
        ...

    def facts(self) -> ConnectionFacts:
        """What is known of the connection; also after `close`. Never raises."""
        ...

    def close(self) -> None:
        """Say goodbye. May be called twice; never raises."""
        ...
