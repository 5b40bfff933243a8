"""Who plays on this machine: the best of those who are wanted, two at most, each as long as it is wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from viewer.live.choice import AgentBatch
from viewer.live.player import AGAIN_AFTER_S, MOST_PLAYERS, LocalPlayer, command_for
from viewer.live.scenes import SceneShelf
from viewer.live.streams import RingStream


class AgentLane(NamedTuple):
    """What somebody is to play: the newest policy of a slot, in a lane."""

    shared: Path
    run_id: str
    slot: int
    lane: str


#: Agent and folder → what is started.
Command = Callable[[AgentLane, Path], Sequence[str]]


def usual_command(part: AgentLane, folder: Path) -> list[str]:
    """`trainer live`."""
    return command_for(part.shared, part.run_id, part.slot, folder, part.lane)


class Troupe:
    """The children. One thread uses it."""

    def __init__(self, shelf: SceneShelf, command: Command = usual_command) -> None:
        self._shelf, self._command = shelf, command
        self._playing: dict[AgentLane, tuple[LocalPlayer, RingStream]] = {}
        self._failed: dict[AgentLane, tuple[float, str]] = {}
        self._enders: list[threading.Thread] = []

    def cast(self, wanted: Sequence[AgentLane], now: float) -> None:
        """Let the first two of `wanted` play, and nobody else. `now`: monotonic s."""
        parts = [part for part in dict.fromkeys(wanted) if now - self._failed.get(part, (-1e9, ""))[0] > AGAIN_AFTER_S]
        parts = parts[:MOST_PLAYERS]
        for part, (player, _) in list(self._playing.items()):
            why = player.ended()
            if why is not None:
                self._failed[part] = (now, why)
            if why is not None or part not in parts:
                del self._playing[part]
                self._end(player)
        self._enders = [thread for thread in self._enders if thread.is_alive()]
        for part in parts:
            if part in self._playing or len(self._playing) + len(self._enders) >= MOST_PLAYERS:
                continue
            if part in self._failed and now - self._failed[part][0] <= AGAIN_AFTER_S:
                continue
            try:
                player = LocalPlayer(partial(self._command, part), part.lane)
            except OSError as error:
                self._failed[part] = (now, str(error.strerror))
                continue
            self._failed.pop(part, None)
            self._playing[part] = (player, RingStream(player.ring, self._shelf))

    def stream(self, part: AgentLane) -> RingStream | None:
        """What a part's player writes; None: nobody plays it."""
        found = self._playing.get(part)
        return found[1] if found is not None else None

    def look(self, now: float) -> dict[AgentLane, tuple[AgentBatch, ...]]:
        """What came of each since the last look."""
        return {part: stream.look(now) for part, (_, stream) in self._playing.items()}

    def why_not(self, part: AgentLane) -> str:
        """Why nobody plays it, where somebody did."""
        found = self._failed.get(part)
        return f"It cannot be played on this machine: {found[1].rstrip('.')}." if found is not None else ""

    def dismiss(self) -> None:
        """End all, and wait for it: some seconds at most."""
        for player, _ in self._playing.values():
            self._end(player)
        self._playing.clear()
        for thread in self._enders:
            thread.join()
        self._enders.clear()

    def _end(self, player: LocalPlayer) -> None:
        """In a thread of its own: a child that does not listen takes seconds."""
        thread = threading.Thread(target=player.end, daemon=True)
        thread.start()
        self._enders.append(thread)
