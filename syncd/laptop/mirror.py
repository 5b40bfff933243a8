"""The laptop's copy of the other side's tree: what is let in, and in which order it becomes visible.

Nothing that comes from the other side is believed. A policy goes size → sha256 → its manifest's own seal → table,
capped decompression, finite numbers; only then its blob is renamed into the tree, then its manifest, then the hint.
So a reader of DIR sees a whole policy or an older whole one, also after a kill at any instruction.

`DIR/part/` holds what is unfinished. What was found bad is not fetched again before the next start.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from anchorleg.files import LEFT_BEHIND_S, fsync_folder, is_full, make_shared_folder, sweep_temporary
from syncd.errors import DamagedPolicyError, NoRoomError, StorageError
from syncd.laptop.capacity import Capacity, CapacityLimits
from syncd.shared.curves import CHUNK_ROWS, MAX_CHUNK_BYTES, chunk_of_file
from syncd.shared.inbox import Inbox, prune_live
from syncd.shared.layout import AVERAGED, NAME, SLOT, Shared, SlotPlace, Version, put, put_json, put_once
from syncd.shared.manifest import MAX_MANIFEST_BYTES, Blob, Manifest, parse_manifest
from syncd.shared.retention import MIRRORS, collect, sweep_slot
from syncd.store import check_blob, hinted, read_manifest, versions
from syncd.wire.arrivals import Offer

#: A file that arrives with another sum was damaged on its way; one that does so each time is bad.
FETCHES = 3
#: Unfinished files that nothing asked for lately: their policies were overtaken.
PART_KEPT_S = 3_600.0

_PATH = re.compile(
    rf"v1/runs/({NAME.pattern})/({SLOT.pattern})/({AVERAGED}/)?(manifests|metrics)/([A-Za-z0-9_.-]{{1,80}})"
)

Fetch = Callable[[Offer, Path], None]


@dataclass(frozen=True)
class OfferTarget:
    """Where an offer belongs (`place`: a slot's, or its `averaged`): exactly one of `version` (a manifest) and `curve`
    (name and number of a chunk) is set.
    """

    place: SlotPlace
    file_name: str
    version: Version | None = None
    curve: tuple[str, int] | None = None

    @property
    def words(self) -> str:
        """As a person is told: `demo-0123abcd/0 3-17`."""
        what = str(self.version) if self.version is not None else self.file_name
        return f"{self.place.run_id}/{self.place.slot} {'averaged ' * self.place.is_averaged}{what}"

    @property
    def slot(self) -> SlotPlace:
        """Whose room it takes."""
        return self.place.slot_itself


@dataclass(frozen=True)
class Arrival:
    """What became visible: a policy (with its manifest) or a part of a curve. `bytes` came over the line for it."""

    target: OfferTarget
    bytes: int
    manifest: Manifest | None = None


class Mirror:
    """The tree below `folder` (DIR). One process at a time (`lock`)."""

    def __init__(
        self, folder: Path, *, limits: CapacityLimits | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.folder = folder
        self.shared = Shared(folder)
        self._clock = clock
        self.capacity = Capacity(self.shared, self._parts, limits)
        self._bad: set[str] = set()

    def target(self, offer: Offer) -> OfferTarget | None:
        """Where `offer` belongs; None where its path is none of ours: it is never used then."""
        found = _PATH.fullmatch(offer.path)
        if not found:
            return None
        slot, is_averaged, folder, name = self.shared.slot(found[1], int(found[2])), bool(found[3]), found[4], found[5]
        if offer.kind == "manifest" and folder == "manifests" and (version := Version.of_file(name)) is not None:
            return OfferTarget(slot.averaged if is_averaged else slot, name, version=version)
        if is_averaged:
            return None
        if offer.kind == "metrics" and folder == "metrics" and (curve := chunk_of_file(name)) is not None:
            return OfferTarget(slot, name, curve=curve)
        return None

    def wanted(
        self, offers: Iterable[Offer], *, changed: bool, say: Callable[[str], None] = lambda _: None
    ) -> list[Offer]:
        """Those that are worth fetching: policies first, of each slot the newest; then curves.

        `changed`: the other side says that they are new; else it only lists them, and the last chunk of a curve may
        have changed without growing. `say` is told why something was passed over, but not what was found bad before.
        """
        found = self._admitted(offers, say)
        newest: dict[SlotPlace, tuple[Version, Offer]] = {}
        last: dict[tuple[SlotPlace, str], int] = {}
        for target, offer in found:
            if target.version is not None:
                newest[target.place] = max(
                    newest.get(target.place, (target.version, offer)), (target.version, offer), key=_by_version
                )
            elif target.curve is not None:
                key = (target.place, target.curve[0])
                last[key] = max(last.get(key, 0), target.curve[1])
        policies = [
            offer
            for place, (version, offer) in newest.items()
            if not (self._has(place, version) or _key(offer) in self._bad)
        ]
        curves = [
            offer
            for target, offer in found
            if target.curve is not None
            and _key(offer) not in self._bad
            and not _is_here(
                target.place.metrics / target.file_name,
                offer,
                may_differ=changed or last[target.place, target.curve[0]] == target.curve[1],
            )
        ]
        return policies + curves

    def _admitted(self, offers: Iterable[Offer], say: Callable[[str], None]) -> list[tuple[OfferTarget, Offer]]:
        """Those that are ours, of slots for which there is room."""
        found: list[tuple[OfferTarget, Offer]] = []
        for offer in offers:
            if (target := self.target(offer)) is None:
                continue
            try:
                self.capacity.check_slot(target.slot)
            except NoRoomError as error:
                say(str(error))
                continue
            found.append((target, offer))
        return found

    def _has(self, place: SlotPlace, version: Version) -> bool:
        """Whether this version or a newer one is here, with blobs of the right size."""
        for known in reversed(versions(place)):
            if known < version:
                return False
            with contextlib.suppress(OSError, DamagedPolicyError):
                blobs = read_manifest(place, known).blobs
                if all(_size(place.blob(blob.sha256)) == blob.bytes for blob in blobs):
                    return True
        return False

    def bring(self, offer: Offer, fetch: Fetch) -> Arrival:
        """Fetch what `offer` names, check it, make it visible. Only for what `wanted` returned.

        Errors: DamagedPolicyError (a sentence; it is remembered, and what is here stays); NoRoomError; StorageError;
        what `fetch` raises (the unfinished part stays, and is gone on with).
        """
        target = self.target(offer)
        if target is None:
            raise DamagedPolicyError("policy.no-place", path=offer.path[:200])
        try:
            self._parts.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.capacity.check_slot(target.slot)
            if target.version is not None:
                return self._bring_policy(target, target.version, offer, fetch)
            return self._bring_curve(target, offer, fetch)
        except DamagedPolicyError as error:
            self._bad.add(_key(offer))
            raise DamagedPolicyError("policy.left-out", policy=target.words, why=error) from error
        except OSError as error:
            where = self.folder if is_full(error) else error.filename or self.folder  # full: one for all files
            raise StorageError("storage.unwritable", path=where, why=error.strerror) from error

    def _bring_policy(self, target: OfferTarget, version: Version, offer: Offer, fetch: Fetch) -> Arrival:
        place = target.place
        if offer.bytes > MAX_MANIFEST_BYTES:
            raise DamagedPolicyError("policy.manifest-too-large", bytes=offer.bytes, most=MAX_MANIFEST_BYTES)
        self.capacity.check(offer.bytes)
        part = self._parts / f"{place.run_id}.{place.slot}.{'averaged.' * place.is_averaged}{target.file_name}"
        sealed = _fetched(offer, part, fetch)
        manifest = parse_manifest(sealed)
        if (manifest.run_id, manifest.slot, manifest.version) != (place.run_id, place.slot, version):
            raise DamagedPolicyError("policy.other-manifest")
        came = len(sealed) + sum(self._bring_blob(target, manifest, blob, fetch) for blob in manifest.blobs)
        make_shared_folder(place.manifests)
        if not put_once(place.manifest(version), sealed) and place.manifest(version).read_bytes() != sealed:
            if _is_whole(place, version):
                raise DamagedPolicyError("policy.changed")
            put(place.manifest(version), sealed)  # this disk damaged it
        hint = hinted(place)
        if hint is None or hint < version:
            put_json(place.latest, {"attempt": version.attempt, "seq": version.seq})
        part.unlink(missing_ok=True)
        collect(place, now=self._clock(), keep=MIRRORS)
        return Arrival(target, came, manifest)

    def _bring_blob(self, target: OfferTarget, manifest: Manifest, blob: Blob, fetch: Fetch) -> int:
        """Have the checked blob in the tree; returns how many bytes came for it."""
        final, beside = target.place.blob(blob.sha256), target.slot.blob(blob.sha256)
        for known in dict.fromkeys((final, beside)):  # an averaged policy has its encoder from the other
            with contextlib.suppress(OSError, DamagedPolicyError):
                check_blob(known.read_bytes(), blob)
                if known != final:
                    make_shared_folder(final.parent)
                    final.unlink(missing_ok=True)
                    os.link(known, final)
                os.utime(final)  # its age counts from its last publication, or `collect` may take it
                return 0
        part = self._parts / blob.sha256
        self.capacity.check(blob.bytes - (_size(part) or 0))
        data = _fetched(blob_of(manifest, blob, is_averaged=target.place.is_averaged), part, fetch)
        try:
            check_blob(data, blob)
        except DamagedPolicyError:
            part.unlink(missing_ok=True)
            raise
        make_shared_folder(final.parent)
        os.replace(part, final)
        fsync_folder(final.parent)
        return len(data)

    def _bring_curve(self, target: OfferTarget, offer: Offer, fetch: Fetch) -> Arrival:
        place = target.place
        if offer.bytes > MAX_CHUNK_BYTES:
            raise DamagedPolicyError("curve.too-large", bytes=offer.bytes, most=MAX_CHUNK_BYTES)
        part = self._parts / f"{place.run_id}.{place.slot}.{target.file_name}"
        self.capacity.check(offer.bytes)
        data = _fetched(offer, part, fetch)
        if len(data) > MAX_CHUNK_BYTES or not _is_json_lines(data):
            part.unlink(missing_ok=True)
            raise DamagedPolicyError("curve.no-lines", most=CHUNK_ROWS)
        make_shared_folder(place.metrics)
        os.replace(part, place.metrics / target.file_name)
        fsync_folder(place.metrics)
        return Arrival(target, len(data))

    @property
    def _parts(self) -> Path:
        return self.folder / "part"

    def tidy(self) -> None:
        """Delete what nobody needs: overtaken policies, what a killed process left in the tree, and parts of these."""
        self.capacity.count_anew()
        with contextlib.suppress(OSError):
            for place in self.shared.slots():  # nobody else writes here: see the lock
                for each in (place, place.averaged):
                    collect(each, now=self._clock(), keep=MIRRORS)
                    sweep_slot(each, before=math.inf)
                prune_live(place.live, now=self._clock())
            for inbox in Inbox.all_of(self.shared):
                for folder in inbox.live_folders():
                    prune_live(folder, now=self._clock())
                    sweep_temporary(folder, math.inf)
            sweep_temporary(self.folder / "state", self._clock() - LEFT_BEHIND_S)  # actors write there, too
        with contextlib.suppress(OSError), os.scandir(self._parts) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if self._clock() - entry.stat(follow_symlinks=False).st_mtime > PART_KEPT_S:
                        is_folder = entry.is_dir(follow_symlinks=False)  # of `pull --rsync`
                        (shutil.rmtree if is_folder else os.unlink)(entry.path)


def blob_of(manifest: Manifest, blob: Blob | None = None, *, is_averaged: bool = False) -> Offer:
    """Where the other side has the weights of a policy: those that learn, or another `blob` of it."""
    blob, inner = blob or manifest.blob, f"{AVERAGED}/" * is_averaged
    path = f"v1/runs/{manifest.run_id}/{manifest.slot}/{inner}blobs/{blob.sha256[:2]}/{blob.sha256}"
    return Offer(path, blob.bytes, blob.sha256, "blob")


def _is_here(path: Path, offer: Offer, *, may_differ: bool) -> bool:
    """Whether the offered part of a curve lies at `path`: by its sum, or by its size where nobody knows the sum, and
    then only unless it `may_differ`. Errors: OSError where it cannot be read.
    """
    if _size(path) != offer.bytes:
        return False
    return not may_differ if offer.sha256 is None else hashlib.sha256(path.read_bytes()).hexdigest() == offer.sha256


def _is_whole(place: SlotPlace, version: Version) -> bool:
    """Whether the manifest that lies here is one."""
    try:
        read_manifest(place, version)
    except (OSError, DamagedPolicyError):
        return False
    return True


def _by_version(item: tuple[Version, Offer]) -> Version:
    return item[0]


def _key(offer: Offer) -> str:
    """What a bad offer is remembered by: its content where the transport knows it, else its name and size."""
    return offer.sha256 or f"{offer.path}:{offer.bytes}"


def _fetched(offer: Offer, part: Path, fetch: Fetch) -> bytes:
    """The offered content, with the sum that was offered. Errors: DamagedPolicyError, what `fetch` raises, OSError."""
    for _ in range(FETCHES):
        fetch(offer, part)
        with open(part, "rb") as file:
            data = file.read(offer.bytes + 1)
        is_right = offer.sha256 is None or hashlib.sha256(data).hexdigest() == offer.sha256
        if is_right and (len(data) == offer.bytes or offer.kind == "metrics"):
            return data
        part.unlink(missing_ok=True)
    raise DamagedPolicyError("policy.changes-on-the-way", kind=offer.kind, times=FETCHES)


def _is_json_lines(data: bytes) -> bool:
    if data and not data.endswith(b"\n"):
        return False
    lines = data.splitlines()
    try:
        return len(lines) <= CHUNK_ROWS and all(isinstance(json.loads(line), dict) for line in lines)
    except (ValueError, RecursionError):
        return False


def _size(path: Path) -> int | None:
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except OSError:
        return None
