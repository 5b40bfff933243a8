"""The door of the store: publish a policy, find the newest, read it, clear old ones away. What it imports it hands on.

A publication is a blob (named by its sha256), then a manifest (named by its version), then `LATEST.json`, a hint. A
reader takes the manifest first and then the blob that it names, so it sees a whole policy or an older whole one.
One process publishes to a slot at a time; any number reads, on any machine.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anchorleg.files import make_shared_folder
from syncd.errors import DamagedPolicyError, MissingBlobError, StorageError
from syncd.shared.counts import (
    Counts,
    day_of,
    found_untrue,
    given_to,
    held,
    hold,
    in_doubt,
    mark_untrue,
    note_removed,
    take_back,
)
from syncd.shared.curves import CHUNK_ROWS, GrowingCurve, read_metrics, rows_of_curve, write_metrics
from syncd.shared.deposit import Deposit
from syncd.shared.inbox import Inbox, offered
from syncd.shared.incoming import Incoming, close_to_others, insist_ours, make_incoming
from syncd.shared.layout import AVERAGED, Shared, SlotPlace, Version, put, put_json, put_once
from syncd.shared.manifest import (
    BYTES_A_NUMBER,
    ENCODING,
    FORMAT,
    MAX_MANIFEST_BYTES,
    MAX_RAW_BYTES,
    Blob,
    Draft,
    Golden,
    Lineage,
    Manifest,
    Origin,
    PolicyFields,
    Score,
    SuiteFields,
    parse_manifest,
)
from syncd.shared.reception import INTAKE, Terms, set_terms, spent, terms_of
from syncd.shared.retention import AVERAGES, LEARNERS, MIRRORS, Keep, collect, prune

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from syncd.shared.codec import Rounded, Tensors

#: How often a reader looks again for a file that vanished under it: cleared away, or an NFS handle gone stale.
LOOKS = 3


@dataclass(frozen=True)
class Packed:
    """Weights as a blob has them: what a manifest says of it, and its bytes."""

    blob: Blob
    data: bytes


def packed(weights: Rounded) -> Packed:
    """`weights` as a blob."""
    from syncd.shared import codec

    data = codec.encode(weights)
    shapes = {name: array.shape for name, array in sorted(weights.items())}
    blob = Blob(
        sha256=hashlib.sha256(data).hexdigest(),
        bytes=len(data),
        raw_bytes=codec.raw_bytes(shapes),
        encoding=ENCODING,
        tensors=shapes,
    )
    return Packed(blob, data)


def publish(
    place: SlotPlace,
    draft: Draft,
    weights: Rounded,
    *,
    encoder: Packed | None = None,
    before_manifest: Callable[[], None] = lambda: None,
) -> Manifest:
    """Publish `weights` as `draft` says; returns the manifest. Readers see all of it or none.

    `encoder`: weights that learn nothing, which are written once. `before_manifest` is the last word before it becomes
    visible: what it raises stops the publication, and what was
    written so far is cleared away by `collect`. Publishing the same version again with the same content is allowed.
    Errors: ValueError (not this slot's); FileExistsError where the version exists with other
    content: one version is never rewritten; OSError (disk full), no part of a file remains then.
    """
    if (draft.run_id, draft.slot) != (place.run_id, place.slot):
        raise ValueError(f"a policy of {draft.run_id}/{draft.slot} does not belong to {place.run_id}/{place.slot}")
    own = packed(weights)
    fields = {name: getattr(draft, name) for name in Draft.model_fields}
    manifest = Manifest(**fields, format=FORMAT, blob=own.blob, encoder=encoder.blob if encoder else None).sealed()
    sealed = manifest.to_bytes()
    if len(sealed) > MAX_MANIFEST_BYTES:
        raise ValueError(f"the manifest has {len(sealed)} bytes, more than {MAX_MANIFEST_BYTES}: use fewer golden rows")
    make_shared_folder(place.manifests)
    if encoder is not None:
        _have(place, encoder)
    path = place.blob(own.blob.sha256)
    make_shared_folder(path.parent)
    put(path, own.data)  # even if it is there: its age must be that of its last publication, or `collect` may take it
    before_manifest()
    _make_visible(place, manifest, sealed)
    return manifest


def _have(place: SlotPlace, encoder: Packed) -> None:
    """Its blob with the age of now, written where it is not there; averaged policies have the slot's own file."""
    path = place.blob(encoder.blob.sha256)
    for known in dict.fromkeys((path, place.slot_itself.blob(encoder.blob.sha256))):
        with contextlib.suppress(OSError):
            if known.stat().st_size == encoder.blob.bytes:
                if known != path:
                    make_shared_folder(path.parent)
                    os.link(known, path)
                os.utime(path)
                return
    make_shared_folder(path.parent)
    put(path, encoder.data)


def _make_visible(place: SlotPlace, manifest: Manifest, sealed: bytes) -> None:
    path = place.manifest(manifest.version)
    try:
        made = put_once(path, sealed)
    except OSError:
        if not path.exists():
            raise
        made = True  # linked, only the last fsync failed: readers may have it already, so it is published
    if not made and path.read_bytes() != sealed:
        raise FileExistsError(errno.EEXIST, "this version was already published with other contents", str(path))
    hint = hinted(place)
    if hint is None or hint < manifest.version:  # a ghost of an older attempt must not turn the hint back
        try:
            put_json(place.latest, {"attempt": manifest.attempt, "seq": manifest.seq})
        except OSError:
            return  # only a hint: readers find the manifest by its name


def hinted(place: SlotPlace) -> Version | None:
    """The version that `LATEST.json` names; None where there is none, or it is torn. One open, one read."""
    try:
        with open(place.latest, "rb") as file:
            value = json.loads(file.read(4096))
        return Version.parse(f"{value['attempt']}-{value['seq']}")
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def versions(place: SlotPlace) -> list[Version]:
    """All versions that have a manifest, ascending; foreign names are passed over. Errors: OSError, not absence."""
    try:
        names = os.listdir(place.manifests)
    except FileNotFoundError:
        return []
    return sorted(version for version in map(Version.of_file, names) if version is not None)


def read_manifest(place: SlotPlace, version: Version) -> Manifest:
    """One version's manifest, checked. Errors: FileNotFoundError, OSError; DamagedPolicyError with one phrase."""
    with open(place.manifest(version), "rb") as file:
        manifest = parse_manifest(file.read(MAX_MANIFEST_BYTES + 1))
    if (manifest.run_id, manifest.slot, manifest.version) != (place.run_id, place.slot, version):
        raise DamagedPolicyError("policy.other-manifest")
    return manifest


def newest(place: SlotPlace, *, without: Container[str] = ()) -> Manifest | None:
    """The highest version with a whole manifest, None where there is none.

    `without`: sums of blobs that were found bad; their versions are passed over, as damaged manifests are. Errors:
    OSError where the folder cannot be read.
    """
    for _ in range(LOOKS):
        hint = hinted(place)
        found = set(versions(place)) | ({hint} if hint else set())
        vanished = False
        for version in sorted(found, reverse=True):
            try:
                manifest = read_manifest(place, version)
            except DamagedPolicyError:
                continue
            except OSError as error:
                if error.errno not in {errno.ENOENT, errno.ESTALE}:
                    raise
                vanished = True
                continue
            if not any(blob.sha256 in without for blob in manifest.blobs):
                return manifest
        if not vanished:
            break
    return None


def read(place: SlotPlace, manifest: Manifest) -> Tensors:
    """The weights that `manifest` names: float32, rounded to bf16. Errors: OSError, DamagedPolicyError."""
    tensors: Tensors = {}
    for blob in manifest.blobs:
        tensors |= _read(place, blob)
    return tensors


def _read(place: SlotPlace, blob: Blob) -> Tensors:
    from syncd.shared import codec

    path = place.blob(blob.sha256)
    for look in range(LOOKS):
        try:
            with open(path, "rb") as file:
                return codec.decode(check_blob(file.read(blob.bytes + 1), blob), blob.tensors)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ESTALE}:
                raise
            if look == LOOKS - 1:
                raise MissingBlobError("blob.gone") from error
    raise AssertionError("unreachable")


def check_blob(data: bytes, blob: Blob) -> bytes:
    """The planes in a blob's bytes: size, sum, table, capped decompression, finite. Errors: DamagedPolicyError."""
    from syncd.shared import codec

    if len(data) != blob.bytes:
        found = "more" if len(data) > blob.bytes else len(data)
        raise DamagedPolicyError("blob.wrong-length", found=found, bytes=blob.bytes)
    if hashlib.sha256(data).hexdigest() != blob.sha256:
        raise DamagedPolicyError("blob.other-sum")
    if blob.encoding != ENCODING:
        raise DamagedPolicyError("blob.newer-encoding", found=blob.encoding, known=ENCODING)
    return codec.check(data, blob.tensors)


def rounded(tensors: Mapping[str, npt.NDArray[np.float32]]) -> Rounded:
    """What `publish` takes, and exactly what its readers get. Errors: ValueError (not float32, not finite as bf16)."""
    from syncd.shared import codec

    return codec.rounded(tensors)
