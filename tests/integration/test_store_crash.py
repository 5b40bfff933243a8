"""kill -9 at every write of a policy's publication: readers see the old one or the new one, whole."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guillotine import killed_at_every_write
from policies import RUN, publish_one, tensors

from syncd import store
from syncd.shared.retention import UNLISTED_S

KEEP = store.Keep(newest=2)


def prepare(folder: Path) -> None:
    """A slot with two policies."""
    for seq in range(2):
        publish_one(store.Shared(folder), 0, seq, created_at=float(seq))


def program(folder: Path, fall: Callable[[], None]) -> None:
    """Publish a third one, and clear the oldest away."""
    fall()
    shared = store.Shared(folder)
    publish_one(shared, 0, 2, created_at=2.0)
    store.collect(shared.slot(RUN, 0), now=time.time(), keep=KEEP)


def seen(shared: store.Shared) -> str | None:
    """The newest version, if its weights are those that were published under it."""
    place = shared.slot(RUN, 0)
    manifest = store.newest(place)
    assert manifest is not None
    weights, right = store.read(place, manifest), store.rounded(tensors(1000 * manifest.attempt + manifest.seq))
    return str(manifest.version) if all((weights[name] == right[name]).all() for name in right) else None


def look(folder: Path) -> dict[str, Any]:
    """What a reader sees; then a successor publishes and clears away."""
    shared = store.Shared(folder)
    place, record = shared.slot(RUN, 0), {"after": seen(shared)}
    publish_one(shared, 0, 2, created_at=2.0)  # the same again: whatever is there of it is no obstacle
    publish_one(shared, 1, 0, created_at=3.0)
    finally_ = seen(shared)
    now = time.time()
    troubles = store.collect(place, now=now + UNLISTED_S + 60, keep=KEEP)
    troubles += store.collect(place, now=now + 3 * UNLISTED_S, keep=KEEP)
    files = sorted(str(path.relative_to(place.path)) for path in place.path.rglob("*") if path.is_file())
    return {**record, "finally": finally_, "troubles": troubles, "files": files, "kept": seen(shared)}


def test_after_a_kill_at_any_write_a_policy_is_whole_and_nothing_is_left_behind(tmp_path):
    records = killed_at_every_write(__file__, tmp_path)
    assert len(records) > 15  # blob, manifest, hint: write, fsync, rename, fsync each; then the clearing away
    after = [record["after"] for record in records]
    assert set(after) == {"0-1", "0-2"}
    assert after == sorted(after)  # once it is there it stays there
    for record in records:
        assert (record["finally"], record["kept"], record["troubles"]) == ("1-0", "1-0", [])
        assert [name.split("/")[0] for name in record["files"]] == ["LATEST.json", *["blobs"] * 2, *["manifests"] * 2]
        assert record["files"] == records[-1]["files"]
