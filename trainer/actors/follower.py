"""Keeps the newest usable policy of the chosen slot at hand: a thread looks, verifies and prepares; actors take.

A policy that cannot be used is named once and not tried again; the last good one stays. Nothing in here waits for a
network: a mirror that is not updated any more is just not newer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch

from anchorleg.output import Notices
from syncd import store
from trainer.sharing.notice import INTAKE
from trainer.sharing.policies import GoldenMismatchError, Policy, UnusablePolicyError, differences, load
from trainer.sharing.selection import (
    STALE_S,
    Choice,
    Need,
    SlotKey,
    is_over,
    key_of,
    parse,
    pick,
    pick_needed,
    said_at,
    why_none_takes,
    why_not_needed,
)

#: How often the followed slot is looked at: one small file on a local disk, 0.1 ms. Adds 0.1 s to a policy's way.
LOOK_S = 0.2
#: How often all the others are: only the choice between slots depends on them.
SURVEY_S = 5.0

#: (place, manifest, error or "") after each policy that was tried.
Tried = Callable[[store.SlotPlace, store.Manifest, str], None]


@dataclass(frozen=True)
class Giver:
    """Who follows in order to give experience. `who`: a name of its own for each giver.

    `waits`: rather rest than play for a slot that takes nothing, because it hands in what it plays at once. Else (a
    laptop, perhaps without a network for days) it plays on, and what the slots said is held against the newest of it.
    """

    who: str
    waits: bool


@dataclass(frozen=True)
class Followed:
    """A policy that passed every check. `at`: monotonic seconds when it was ready."""

    place: store.SlotPlace
    manifest: store.Manifest
    policy: Policy
    at: float

    @property
    def key(self) -> SlotKey:
        """(run id, slot)."""
        return key_of(self.manifest)

    @property
    def version(self) -> tuple[int, int]:
        """(attempt, seq)."""
        return self.manifest.attempt, self.manifest.seq


class Follower:
    """Follows `choice` in `shared`. Use it as a context; `device` is where policies act.

    `waiting_for` says in words what is missing while there is no policy, and `resting` why a giver waits although there
    is one; None: it does not. `unneeded`: why what is played now is not to be given; None: it is. `is_over`: all slots
    that may be chosen have said that their training is complete. `giver`: choose by need. `averaged`: of each slot its
    averaged policies. `tried` is called from the thread.
    """

    def __init__(
        self,
        shared: store.Shared,
        choice: Choice,
        device: torch.device | None = None,
        *,
        giver: Giver | None = None,
        averaged: bool = False,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        tried: Tried = lambda _place, _manifest, _error: None,
        look_s: float = LOOK_S,
        survey_s: float = SURVEY_S,
    ) -> None:
        self.waiting_for = f"looking for a policy in {shared.path}"
        self.resting: str | None = None
        self.unneeded: str | None = None
        self.is_over = False
        self._giver, self._averaged = giver, averaged
        self._wall, self._monotonic = wall, monotonic
        self._needs: dict[SlotKey, Need] = {}
        # Of each slot its last row, when that was new (-inf: nobody knows), and when it was seen first.
        self._said: dict[SlotKey, tuple[object, float, float]] = {}
        self._shared = shared
        self._choice = choice
        self._device = device
        self._tried = tried
        self._look_s, self._survey_s = look_s, survey_s
        self._ready: Followed | None = None
        self._bad: dict[SlotKey, store.Version] = {}  # of each slot the last one that cannot be used
        self._notices = Notices()
        self._defect: Exception | None = None
        self._newest: dict[SlotKey, store.Manifest] = {}
        self._surveyed_at = float("-inf")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join(self._look_s + 1.0)

    def newest(self) -> Followed | None:
        """What to act with now: the newest good policy. Costs nothing; call it before every step.

        A defect that ended the thread is raised here.
        """
        if self._defect is not None:
            raise self._defect
        return self._ready

    def tell(self, say: Callable[[str], None]) -> None:
        """Hand out what there is to say: each cause once, for each publication of an incompatible run has it."""
        self._notices.tell(say)

    def look(self) -> None:
        """One look; what the thread does again and again."""
        followed = self._ready.key if self._ready else None
        is_survey = followed is None or time.monotonic() - self._surveyed_at >= self._survey_s
        if is_survey:
            self._surveyed_at = time.monotonic()
            self._survey()
        elif followed is not None:
            place, seen = self._shared.slot(*followed), self._newest.get(followed)
            if seen is None or store.hinted(self._policies(place)) not in {seen.version, None}:
                self._see(place)
        usable = {key: manifest for key, manifest in self._newest.items() if self._bad.get(key) != manifest.version}
        if self._ready is not None and followed not in usable:
            usable[self._ready.key] = self._ready.manifest
        wanted = self._pick(list(usable.values()), followed)
        if wanted is not None and not (self._ready is not None and wanted == self._ready.manifest):
            self._prepare(wanted)

    def _pick(self, usable: list[store.Manifest], followed: SlotKey | None) -> store.Manifest | None:
        giver = self._giver
        if giver is None:
            return pick(usable, self._choice, followed)
        wanted = pick_needed(usable, self._needs, followed, giver.who)
        if wanted is None and not giver.waits:
            wanted = pick(usable, self._choice, followed)
        self.unneeded = why_not_needed(self._needs.get(key_of(wanted)) if wanted is not None else None)
        if giver.waits:
            self.is_over = is_over(self._needs)
            self.resting = why_none_takes(self._needs) if wanted is None and self._newest else self.unneeded
        return wanted

    def _ask(self, giver: Giver, places: list[store.SlotPlace]) -> None:
        """Note what these slots say that they need."""
        rows = {}
        for place in places:
            if found := store.read_metrics(place, INTAKE, parts=1):
                rows[place.run_id, place.slot] = found[-1]
        newest = max((at for row in rows.values() if (at := said_at(row)) is not None), default=0.0)
        now = self._wall() if giver.waits else newest
        self._needs = {}
        for key, row in rows.items():
            last, since, seen_at = self._said.get(key, (None, float("-inf"), self._monotonic()))
            if row != last:  # the first one may be old; one that replaces another was written just now
                since, seen_at = float("-inf") if last is None else self._monotonic(), self._monotonic()
                self._said[key] = row, since, seen_at
            at = said_at(row)
            by_its_clock = now - at if at is not None else float("inf")
            heard_s = max(0.0, min(by_its_clock, self._monotonic() - since))  # clocks of nodes may differ
            if (need := parse(row, heard_s)) is not None:
                need = need if self._choice.slot is None else replace(need, slots=1)  # no other slot is waited for
                # Without news of the slot (no network, say) its last word does not keep anybody from recording.
                is_lately = self._monotonic() - seen_at < STALE_S
                self._needs[key] = need if is_lately else replace(need, full=False)

    def _survey(self) -> None:
        places = self._shared.slots()
        chosen = [place for place in places if self._choice.takes(place)]
        self._newest = {}
        for place in chosen:
            self._see(place)
        if self._giver is not None:
            self._ask(self._giver, chosen)
        if self._newest:
            return
        if self._averaged and any(store.hinted(place) for place in chosen):
            self.waiting_for = (
                f"waiting for a first averaged policy in {self._shared.path}; to play without it, leave out --averaged"
            )
        elif chosen or not places:
            self.waiting_for = f"waiting for the first policy in {self._shared.path}"
        else:
            there = ", ".join(sorted({place.run_id for place in places}))
            self.waiting_for = f"waiting for a policy of {self._choice} in {self._shared.path} (there is {there})"

    def _see(self, place: store.SlotPlace) -> None:
        """Note the slot's newest manifest, or the last one seen where it cannot be read at the moment."""
        manifest = store.newest(self._policies(place))
        if manifest is not None:
            self._newest[key_of(manifest)] = manifest

    def _policies(self, place: store.SlotPlace) -> store.SlotPlace:
        return place.averaged if self._averaged else place

    def _prepare(self, manifest: store.Manifest) -> None:
        place = self._shared.slot(manifest.run_id, manifest.slot)
        name = f"{'averaged ' * self._averaged}policy {manifest.version} of {manifest.run_id}/{manifest.slot}"
        try:
            policy = load(self._policies(place), manifest, self._device)
        except (OSError, store.MissingBlobError) as error:  # on its way, or just collected: look again
            self.waiting_for = f"waiting for the weights of {name} ({getattr(error, 'strerror', None) or error})"
            return
        except (UnusablePolicyError, store.DamagedPolicyError) as error:
            self._bad[key_of(manifest)] = manifest.version
            self.waiting_for = f"waiting for a policy that can be played here; {name} cannot: {error}"
            kept = " The last good one continues." if self._ready else " Waiting for the next."
            # How far its actions are off is another number with each policy, and the same trouble.
            cause = type(error).__name__ if isinstance(error, GoldenMismatchError) else str(error)
            self._notices.trouble(f"{name} is not used: {error}.{kept}", cause=cause)
            self._tried(place, manifest, str(error))
            return
        warning = differences(manifest.suite)
        if warning:
            self._notices.trouble(warning)
        self._ready = Followed(place, manifest, policy, time.monotonic())
        self._tried(place, manifest, "")

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.look()
            except OSError as error:
                why = error.strerror or str(error)
                self._notices.trouble(f"{self._shared.path} cannot be read ({why})", cause=why)
            except Exception as error:  # noqa: BLE001 - raised again by `newest`: a thread cannot end the program
                self._defect = error
                return
            self._stop.wait(self._look_s)
