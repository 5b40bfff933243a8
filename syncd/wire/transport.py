"""What passes between a session and those who use it: offers, news, verdicts, receipts, facts of the connection.

Paths are relative to `$SHARED`, with `/`: `v1/runs/<run>/<slot>/LATEST.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from syncd.wire.protocol import SegmentVerdict, Standing

#: What a mirror takes (`syncd.laptop.capacity`), and so a transport keeps. A queue of 2,000 experiments, twice.
MAX_SLOTS = 4_000
#: 4,000 slots with three policies each and ten parts of curves have 80,000.
MAX_FILES = 200_000
#: Of the curves of all slots: 34 with 20,000 rows each have 1.1 GB on MT10, and 4.3 on MT50.
MAX_CURVES_BYTES = 4 * 2**30


@dataclass(frozen=True)
class Offer:
    """One file of the other side: a manifest (the newest of its slot), a file of metrics; or what is no news, because
    something else names it: a blob, or a scene, which may have fewer bytes.

    `sha256` is the hex sum of the content; None where nobody knows it beforehand (what comes by rsync).
    """

    path: str
    bytes: int
    sha256: str | None
    kind: Literal["manifest", "blob", "metrics", "scene"]


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
    clients come back when they lose it at once. None: not known.
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
