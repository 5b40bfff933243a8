"""One episode for a page that is a file: played by this machine, and kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from anchorleg.live.batches import FACTS
from anchorleg.live.wanted import ANY
from anchorleg.words import sized
from viewer.live.choice import CheckedBatch, SceneFile
from viewer.live.player import PlayerHere
from viewer.live.ranking import ranked
from viewer.live.scenes import SceneShelf
from viewer.live.streams import RingStream
from viewer.live.troupe import Command, Role, usual_command
from viewer.model import AgentRow, LiveFacts

#: Of an episode so much goes into a file; one of Meta-World has 6 s.
LONGEST_S = 12.0
#: Of scene and batches: a third more as text, and the page has some hundred kB, so a file has 3 MB at most.
MOST_BYTES = 1_900_000
#: torch and a simulator are loaded first, perhaps from a network folder.
WAIT_S = 180.0
#: A ring has eight batches, one each 0.2 s.
LOOK_EVERY_S = 0.1


class NoEpisodeError(Exception):
    """Why a file has no episode: the end of a sentence."""


class RecordedEpisode(NamedTuple):
    """Of `agent`. `scene`: what its bodies look like; None: pictures."""

    agent: AgentRow
    scene: SceneFile | None
    batches: tuple[CheckedBatch, ...]


def record(
    facts: LiveFacts,
    *,
    command: Command = usual_command,
    longest_s: float = LONGEST_S,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], None] = time.sleep,
) -> RecordedEpisode:
    """Play the newest policy of the best slot, in real time, until its first episode ends, or long enough.

    Errors: NoEpisodeError.
    """
    best = ranked([one.model_copy(update={"at_work": True}) for one in facts.agents if one.has_policy])
    if not best:
        raise NoEpisodeError("no slot has published a policy")
    role = Role(Path(facts.shared), facts.run_id, best[0].slot, ANY)
    try:
        player = PlayerHere(partial(command, role), ANY)
    except OSError as error:
        raise NoEpisodeError(f"the trainer cannot be started here ({error.strerror})") from None
    try:
        return _recorded(best[0], player, longest_s, clock, wait)
    finally:
        player.end()


def _recorded(
    agent: AgentRow, player: PlayerHere, longest_s: float, clock: Callable[[], float], wait: Callable[[float], None]
) -> RecordedEpisode:
    stream, kept = RingStream(player.ring, SceneShelf()), list[CheckedBatch]()
    until = clock() + WAIT_S + longest_s
    while True:
        ended = player.ended()
        news = stream.look(clock())
        own = [one for one in news if not kept or one.header["episode"] == kept[0].header["episode"]]
        kept += own
        if kept and (len(own) < len(news) or _length(kept) >= longest_s or _size(kept) > MOST_BYTES):
            break
        if stream.why:
            raise NoEpisodeError(stream.why.rstrip("."))
        if ended is not None:
            raise NoEpisodeError(ended.rstrip("."))
        if clock() > until:
            words = player.last_words().rstrip(".")
            raise NoEpisodeError(words or f"nothing came of it within {WAIT_S:.0f} s")
        wait(LOOK_EVERY_S)
    return _checked(agent, stream, kept)


def _checked(agent: AgentRow, stream: RingStream, kept: list[CheckedBatch]) -> RecordedEpisode:
    if any(one.kind == FACTS for one in kept):
        raise NoEpisodeError("its environment cannot be drawn")
    names = {str(one.header["scene"]) for one in kept if "scene" in one.header}
    if len(names) > 1 or names - stream.scenes.keys():
        raise NoEpisodeError("its scene did not come")
    scenes = [SceneFile(name, stream.scenes[name].data) for name in names]
    if sum(len(one.data) for one in scenes) > MOST_BYTES:
        raise NoEpisodeError(f"its scene is too large for a file ({sized(len(scenes[0].data))})")
    room = MOST_BYTES - sum(len(one.data) for one in scenes)
    while len(kept) > 1 and _size(kept) > room:
        kept.pop()
    return RecordedEpisode(agent, scenes[0] if scenes else None, tuple(kept))


def _length(batches: list[CheckedBatch]) -> float:
    return float(batches[-1].header["at"] - batches[0].header["at"])


def _size(batches: list[CheckedBatch]) -> int:
    return sum(len(one.body) for one in batches)
