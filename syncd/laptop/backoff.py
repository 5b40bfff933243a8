"""When to try again, and what had better not be tried again. Pure: time and chance are passed in."""

from __future__ import annotations

from dataclasses import dataclass, replace

from syncd.errors import (
    ConfigError,
    GoneError,
    HostKeyError,
    LoginRefusedError,
    StorageError,
    SyncError,
    UnreachableError,
)

#: Short enough for a blip of the network, long enough that nobody takes it for an attack.
FIRST_DELAY_S = 1.0
#: KataGo's clients and Mutagen grow alike; 1.6 reaches the cap at the ninth failure.
GROWTH = 1.6
#: A night without the cluster is 500 tries, of which none reaches a login while the network is away.
MAX_DELAY_S = 60.0
#: So long a life counts as progress, even of an idle connection.
LIVE_ENOUGH_S = 30.0
#: Who was told when to come again comes later by a part of this: a thousand were told the same (midnight, say).
MOST_LATER_S = 300.0
#: A full disk is somebody's to clear; asking it is cheap.
DISK_RETRY_S = 10.0


@dataclass(frozen=True)
class Backoff:
    """How many connections in a row came to nothing.

    `spread_s`: what the server said last of how long its clients should take to come back, if they lose it at once.
    """

    failures: int = 0
    spread_s: float = 0.0

    def failed(self) -> Backoff:
        """After one more connection that came to nothing."""
        return replace(self, failures=self.failures + 1)

    def progressed(self) -> Backoff:
        """After a connection that brought something."""
        return replace(self, failures=0)

    def delay_s(self, chance: float) -> float:
        """How long to wait now; `chance` in [0, 1) is drawn evenly.

        Full jitter: laptops that lost one server must not come back in the same second. Of a few it is the first
        delay that spreads them, of many what the server asked for: never more than the longest delay.
        """
        # The exponent stops where the cap has long been reached: 1.6 ** 2000 is no float.
        return chance * min(MAX_DELAY_S, max(self.spread_s, FIRST_DELAY_S * GROWTH ** min(self.failures, 64)))


def jittered(every_s: float, chance: float) -> float:
    """An interval of `every_s` on average, three to five quarters of it: who began together does not go on so."""
    return every_s * (0.75 + 0.5 * chance)


def later(after_s: float, chance: float) -> float:
    """When to ask again after an answer that said "in `after_s`": not before, and a chance of its own later, up to as
    much again and to `MOST_LATER_S`.
    """
    return after_s + chance * min(after_s, MOST_LATER_S)


def made_progress(*, lived_s: float, moved: int) -> bool:
    """Whether a connection was worth something: `moved` files came or went, or it lived long enough."""
    return moved > 0 or lived_s >= LIVE_ENOUGH_S


def stops(error: SyncError, *, was_live: bool) -> bool:
    """Whether trying again by itself is wrong, so that a person must look.

    An unknown host key, a refused key (three strikes are a ban at many sites) and a wrong setting stay as they are.
    Another side that cannot serve stops us only where it never could: one that served before is being mended.
    """
    if isinstance(error, UnreachableError | StorageError | GoneError):
        return False
    return not was_live or isinstance(error, ConfigError | HostKeyError | LoginRefusedError)
