"""What leaves a server, as frames: news, files that were asked for, and what is told of the contributor."""

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
from syncd.wire.protocol import MAX_ENTRIES, MAX_PAYLOAD_BYTES, File, Standing, encode
from syncd.wire.tree import open_file

NO_CHECKPOINTS = (
    "no whole checkpoints come from there: either this key was not granted them (`syncd setup --friend NAME "
    "--friend-checkpoints` makes a line that grants them), or the shared folder is not the run folder's own `shared`"
)


def news_frames(news: Iterable[File | None]) -> Iterator[bytes]:
    """OFFERED of what is new, policies at once. b"": nothing to say so far."""
    curves: list[File] = []
    for one in news:
        if one is not None and "/metrics/" not in one.path:
            yield encode(protocol.Offered(files=(one,)))
            continue
        curves += [one] if one is not None else []
        if len(curves) == MAX_ENTRIES:
            yield encode(protocol.Offered(files=tuple(curves)))
            curves = []
        else:
            yield b""
    if curves:
        yield encode(protocol.Offered(files=tuple(curves)))


def file_frames(root: Path, key: str, path: str, offset: int) -> Iterator[bytes]:
    """DATA of the file at `path` below `root` from `offset` on, then END; or GONE."""
    try:
        fd = open_file(root, path)
    except OSError:
        yield encode(protocol.FileGone(key=key, sentence=f"{path} is not there any more"))
        return
    with open(fd, "rb", buffering=0) as file:
        try:
            while payload := os.pread(file.fileno(), MAX_PAYLOAD_BYTES, offset):
                yield encode(protocol.Data(key=key, offset=offset), payload)
                offset += len(payload)
        except OSError as error:  # a network folder: the handle went stale
            yield encode(protocol.FileGone(key=key, sentence=f"{path} cannot be read now ({error.strerror})"))
            return
    yield encode(protocol.End(key=key, bytes=offset))


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
