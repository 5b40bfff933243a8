"""Who plays on this machine: the best of those who are wanted, two at most, each as long as it is wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from viewer.live.choice import CheckedBatch
from viewer.live.player import AGAIN_AFTER_S, MOST_PLAYERS, PlayerHere, command_for
from viewer.live.scenes import SceneShelf
from viewer.live.streams import RingStream


class Role(NamedTuple):
    """What somebody is to play: the newest policy of a slot, in a lane."""

    shared: Path
    run_id: str
    slot: int
    lane: str


#: Role and folder → what is started.
Command = Callable[[Role, Path], Sequence[str]]


def usual_command(role: Role, folder: Path) -> list[str]:
    """`trainer live`."""
    return command_for(role.shared, role.run_id, role.slot, folder, role.lane)


class Troupe:
    """The children. One thread uses it; `dismiss` may come from another one while that hangs."""

    def __init__(self, shelf: SceneShelf, command: Command = usual_command) -> None:
        self._shelf, self._command = shelf, command
        self._playing: dict[Role, tuple[PlayerHere, RingStream]] = {}
        self._failed: dict[Role, tuple[float, str]] = {}
        self._enders: list[threading.Thread] = []

    def cast(self, wanted: Sequence[Role], now: float) -> None:
        """Let the first two of `wanted` play, and nobody else. `now`: monotonic s."""
        roles = [role for role in dict.fromkeys(wanted) if now - self._failed.get(role, (-1e9, ""))[0] > AGAIN_AFTER_S]
        roles = roles[:MOST_PLAYERS]
        for role, (player, _) in list(self._playing.items()):
            why = player.ended()
            if why is not None:
                self._failed[role] = (now, why)
            if why is not None or role not in roles:
                del self._playing[role]
                self._end(player)
        self._enders = [thread for thread in self._enders if thread.is_alive()]
        for role in roles:
            if role in self._playing or len(self._playing) + len(self._enders) >= MOST_PLAYERS:
                continue
            if role in self._failed and now - self._failed[role][0] <= AGAIN_AFTER_S:
                continue
            try:
                player = PlayerHere(partial(self._command, role), role.lane)
            except OSError as error:
                self._failed[role] = (now, str(error.strerror))
                continue
            self._failed.pop(role, None)
            self._playing[role] = (player, RingStream(player.ring, self._shelf))

    def stream(self, role: Role) -> RingStream | None:
        """What a role's player writes; None: nobody plays it."""
        found = self._playing.get(role)
        return found[1] if found is not None else None

    def look(self, now: float) -> dict[Role, tuple[CheckedBatch, ...]]:
        """What came of each since the last look."""
        return {role: stream.look(now) for role, (_, stream) in self._playing.items()}

    def why_not(self, role: Role) -> str:
        """Why nobody plays it, where somebody did."""
        found = self._failed.get(role)
        return f"It cannot be played on this machine: {found[1].rstrip('.')}." if found is not None else ""

    def dismiss(self) -> None:
        """End all, and wait for it: some seconds at most."""
        for player, _ in list(self._playing.values()):
            self._end(player)
        self._playing.clear()
        for thread in list(self._enders):
            thread.join()
        self._enders.clear()

    def _end(self, player: PlayerHere) -> None:
        """In a thread of its own: a child that does not listen takes seconds."""
        thread = threading.Thread(target=player.end, daemon=True)
        thread.start()
        self._enders.append(thread)
