"""What leaves a server, as frames: news with their blobs, and files that were asked for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from syncd.shared.guests import Guest
from syncd.shared.holds import held
from syncd.shared.inbox import Inbox
from syncd.shared.layout import Shared, folder_names
from syncd.shared.saved import newest_saved, path_in_run, run_id_of, slots_in
from syncd.wire import protocol
from syncd.wire.arrivals import EAGER_BYTES
from syncd.wire.feed import PolicyNews
from syncd.wire.pacing import Bandwidth
from syncd.wire.protocol import MAX_ENTRIES, MAX_PAYLOAD_BYTES, File, Standing, encode
from syncd.wire.tree import open_file

#: A client with a limit on its bandwidth is not sent unasked what takes longer than this.
EAGER_WITHIN_S = 10.0
NO_CHECKPOINTS = (
    "no whole checkpoints come from there: either this key was not granted them (`syncd setup --friend NAME "
    "--friend-checkpoints` makes a line that grants them), or the shared folder is not the run folder's own `shared`"
)


def news_frames(
    root: Path, news: Iterable[PolicyNews | File | None], bandwidth: Bandwidth, *, eager: bool
) -> Iterator[bytes]:
    """POLICY of each new policy, `eager`: with its blob where that is small; METRICS. b"": nothing more so far."""
    curves: list[File] = []
    for one in news:
        if not isinstance(one, PolicyNews):
            curves += [one] if one is not None else []
            if len(curves) == MAX_ENTRIES:
                yield encode(protocol.Metrics(files=tuple(curves)))
                curves = []
            else:
                yield b""
            continue
        is_soon_there = bandwidth.allows(one.blob_bytes, EAGER_WITHIN_S)
        pushed = eager and not one.is_averaged and one.blob_bytes <= EAGER_BYTES and is_soon_there
        yield encode(
            protocol.PublishedPolicy(
                path=one.path,
                blob_bytes=one.blob_bytes,
                blob_sha256=one.blob_sha256,
                eager=pushed,
            ),
            one.content,
        )
        if pushed:
            yield from file_frames(root, one.blob_sha256, one.blob_path, 0)
    if curves:
        yield encode(protocol.Metrics(files=tuple(curves)))


def file_frames(root: Path, key: str, path: str, offset: int, most: int | None = None) -> Iterator[bytes]:
    """DATA of the file at `path` below `root` from `offset` on, `most` bytes of it (None: all), then END; or GONE."""
    try:
        fd = open_file(root, path)
    except OSError:
        yield encode(protocol.FileGone(key=key, sentence=f"{path} is not there any more"))
        return
    end = None if most is None else offset + most
    with open(fd, "rb", buffering=0) as file:
        try:
            while payload := os.pread(file.fileno(), _part(offset, end), offset):
                yield encode(protocol.Data(key=key, offset=offset), payload)
                offset += len(payload)
        except OSError as error:  # a network folder: the handle went stale
            yield encode(protocol.FileGone(key=key, sentence=f"{path} cannot be read now ({error.strerror})"))
            return
    yield encode(protocol.End(key=key, bytes=offset))


def _part(offset: int, end: int | None) -> int:
    return MAX_PAYLOAD_BYTES if end is None else min(MAX_PAYLOAD_BYTES, max(0, end - offset))


def saved(run: Path | None, first: int) -> protocol.SavedThere:
    """Whole checkpoints of the run folder `run`, of the slots from `first` on. None: this client gets none."""
    if run is None:
        return protocol.SavedThere(sentence=NO_CHECKPOINTS)
    try:
        wanted = [slot for slot in slots_in(run / "slots") if slot >= first][:MAX_ENTRIES]
        slots = tuple(protocol.SavedSlot(slot=slot, saved=tuple(_sized(run, slot))) for slot in wanted)
    except OSError as error:
        return protocol.SavedThere(sentence=f"the checkpoints over there cannot be read ({error.strerror})")
    return protocol.SavedThere(run_id=run_id_of(run), slots=slots)


def _sized(run: Path, slot: int) -> Iterator[tuple[int, int, int]]:
    for one in newest_saved(run / "slots", slot):
        with contextlib.suppress(FileNotFoundError):
            yield (*one, os.lstat(run / path_in_run(slot, one) / "manifest.json").st_size)


#: Logins that a gateway takes a second. OpenSSH's `MaxStartups 10:30:100` begins to turn logins away at ten that are
#: under way, and one takes half a second where the machine is busy.
LOGINS_A_SECOND = 20
#: No more than this is asked for: a client waits no longer between two tries.
MOST_SPREAD_S = 60.0


def standing_of(inbox: Inbox | Guest | None, now: float) -> Standing | None:
    """How the contributor stands with the folder's owner; None: that could not be looked at. `now`: unix seconds."""
    try:
        own = inbox.inbox() if isinstance(inbox, Guest) else inbox
        if own is None:
            return Standing()
        used, hold = own.claimed(), held(own.path, now)
        return Standing(
            dropped=own.is_dropped, held_s=None if hold is None else hold.until - now,
            why="" if hold is None else hold.why[:500], segments=used.segments, bytes=used.bytes,
        )  # fmt: skip
    except OSError:
        return None


def spread_s(shared: Shared) -> float:
    """Over so many seconds those who contribute here should spread their logins when they lose the server at once."""
    try:
        known = len(folder_names(shared.inbox_folder))
    except OSError:
        return 0.0
    return min(MOST_SPREAD_S, known / LOGINS_A_SECOND)
