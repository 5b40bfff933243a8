"""A laptop that logs in as another account than the shared folder's owner: what `syncd serve` may do for it.

It runs as that account, so the file system holds it to what every account may: read, and add to `incoming/`
(`syncd.shared.incoming`). Its verdicts lie in the inbox that the owner's learner keeps for it; it reads them, and
remembers for as long as the connection lives which of them the client has.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable

from syncd.errors import StorageError
from syncd.shared.accounts import PREFIX
from syncd.shared.inbox import Inbox, InboxVerdict, verdict_files
from syncd.shared.incoming import Deposit
from syncd.shared.layout import Shared
from syncd.shared.reception import (
    QUOTA_RETRY_S,
    STORAGE_RETRY_S,
    Reception,
    Refusal,
    Stored,
    dropped,
    is_stored,
    objection,
)

#: How often the verdicts are looked through although the folder's time has not changed: two changes can have one time.
LOOK_ANYWAY_S = 10.0


class Guest:
    """The account that runs this, at somebody else's shared folder. `who`: what its inbox is called.

    Errors of the constructor: OSError.
    """

    def __init__(
        self, shared: Shared, clock: Callable[[], float] = time.monotonic, deposit: Deposit | None = None
    ) -> None:
        self._shared, self._clock = shared, clock
        self._deposit = deposit or Deposit(shared)
        self._known: set[str] = set()
        self._found: list[InboxVerdict] = []
        self._folder_at: int | None = None
        self._look_at = 0.0

    @property
    def who(self) -> str:
        """Whose experience it is."""
        return self._deposit.who

    def inbox(self) -> Inbox | None:
        """The inbox that the owner keeps for this account; None before anything was taken. Errors: OSError."""
        return self._deposit.inbox()

    def receive(
        self, run_id: str, slot: int, sha256: str, size: int, version: str | None = None
    ) -> Reception | Stored | Refusal:
        """Take in a segment: see `syncd.shared.reception.receive`. Errors: OSError."""
        inbox = self._deposit.inbox()
        # Before anything was taken there is no inbox, nobody is dropped, and no name begins so.
        asked = inbox or Inbox(who=self.who, path=self._shared.inbox_folder / f".{PREFIX}none")
        refusal = objection(asked, run_id, slot, sha256, size, version=version)
        if refusal is not None:
            return refusal
        if inbox is not None and is_stored(inbox, run_id, slot, sha256):
            return Stored()
        if not self._shared.incoming(run_id, slot).is_dir():
            return Refusal("no inbox", f"slot {slot} of {run_id} takes nothing from other accounts", STORAGE_RETRY_S)
        try:
            has_room = self._deposit.has_room(run_id, slot)
        except StorageError as error:
            return Refusal("storage", str(error), STORAGE_RETRY_S)
        if not has_room:
            return _too_many(self._deposit)

        def keep(data: bytes) -> Stored | Refusal:
            try:
                is_taken = self._deposit.offer(run_id, slot, data, asks=True)
            except StorageError as error:
                return Refusal("storage", str(error), STORAGE_RETRY_S)
            return Stored() if is_taken else _too_many(self._deposit)

        return Reception(sha256, size, keep)

    def verdicts(self) -> list[InboxVerdict]:
        """Answers that were not acknowledged over this connection, as many as an inbox hands out. Errors: OSError."""
        inbox = self._deposit.inbox()
        if inbox is None:
            return []
        try:
            changed_at = os.stat(inbox.path / "verdicts").st_mtime_ns
        except FileNotFoundError:
            return []
        is_news = changed_at != self._folder_at or self._clock() >= self._look_at
        if is_news or len(self._found) >= inbox.limits.verdicts:
            self._folder_at, self._look_at = changed_at, self._clock() + LOOK_ANYWAY_S
            self._known &= {file.path.stem for file in verdict_files(inbox.path / "verdicts")}
            self._found = inbox.verdicts(self._known)
        return [verdict for verdict in self._found if verdict.sha256 not in self._known]

    def acknowledge(self, sha256s: Iterable[str]) -> None:
        """The client has these verdicts."""
        told = {verdict.sha256 for verdict in self._found}
        self._known |= told.intersection(sha256s)


def _too_many(deposit: Deposit) -> Refusal:
    if deposit.is_dropped:
        return dropped(deposit.who)
    # Of this slot: the client sends those of others meanwhile.
    words = f"{deposit.most_waiting} segments of {deposit.who} wait for this slot's learner already"
    return Refusal("full", words, QUOTA_RETRY_S)
