"""Rows of the replay ring on disk: immutable files, each written once by the attempt that made the rows.

`<attempt_dir>/rows/<step>.safetensors` holds the rows that came since the checkpoint before. A checkpoint lists all
files that make up its rings, older attempts' among them, by path, size and sha256; so saving costs the new rows only,
walking back to an older checkpoint works, and a ghost's files are simply not listed. Rows that others sent in lie in
files of their own, `<step>-contributed.safetensors`. Pictures are packed (`trainer.buffers.packing`).
"""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath

import safetensors
import safetensors.numpy
from pydantic import BaseModel, ConfigDict, Field

from anchorleg.files import make_folder, read_regular, write_bytes
from trainer.buffers.experience import Experience
from trainer.buffers.packing import packed, unpacked
from trainer.buffers.replay import Block, Ring
from trainer.errors import DamagedCheckpointError

_SUFFIX = ".safetensors"
#: What a row file's name says beyond the step: rows that the run made itself, that others sent in, and of other slots.
OWN, CONTRIBUTED, PEERS = "", "-contributed", "-peers"


class RowsFile(BaseModel):
    """One file of rows, as a checkpoint lists it: `path` is relative to the slot's folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    sha256: str
    bytes: int = Field(ge=0)
    starts: tuple[int, ...]
    counts: tuple[int, ...]

    @property
    def ends(self) -> tuple[int, ...]:
        """The number of the row after the last, of each task."""
        return tuple(start + count for start, count in zip(self.starts, self.counts, strict=True))


def rings_of(experience: Experience | None) -> dict[str, tuple[Ring, int]]:
    """Those that there are, by the kind of their rows, and how often each was built anew."""
    if experience is None:
        return {}
    foreign = {CONTRIBUTED: experience.others, PEERS: experience.peers}
    found = {kind: (others.ring, others.restarts) for kind, others in foreign.items() if others is not None}
    return {OWN: (experience.own, 0), **found}


def saved_until(segments: tuple[RowsFile, ...], num_tasks: int) -> tuple[int, ...]:
    """The first row of each task that no segment holds yet."""
    return segments[-1].ends if segments else (0,) * num_tasks


def rows_path(attempt_dir: Path, step: int, kind: str = OWN) -> Path:
    """Where the rows of the checkpoint of `step` go."""
    return attempt_dir / "rows" / f"{step:012d}{kind}{_SUFFIX}"


def write_rows_file(slot_dir: Path, attempt_dir: Path, step: int, block: Block, kind: str = OWN) -> RowsFile | None:
    """Write the rows of `block` durably; None where there are none. Errors: OSError (no part remains)."""
    if not sum(block.counts):
        return None
    data: bytes = safetensors.numpy.save(packed(block.arrays))
    path = rows_path(attempt_dir, step, kind)
    make_folder(path.parent)
    write_bytes(path, data)
    return RowsFile(
        path=path.relative_to(slot_dir).as_posix(),
        sha256=hashlib.sha256(data).hexdigest(),
        bytes=len(data),
        starts=block.starts,
        counts=block.counts,
    )


def still_needed(segments: tuple[RowsFile, ...], counts: tuple[int, ...], capacity: int) -> tuple[RowsFile, ...]:
    """The segments of which a ring of `capacity` rows a task, at `counts`, still holds a row."""
    return tuple(
        segment
        for segment in segments
        if any(
            count and end > total - capacity
            for count, end, total in zip(segment.counts, segment.ends, counts, strict=True)
        )
    )


def read_into(ring: Ring, slot_dir: Path, segments: tuple[RowsFile, ...]) -> None:
    """Fill `ring` (its `counts` set) from `segments`. Errors: DamagedCheckpointError, naming the file."""
    placed = 0
    for segment in segments:
        try:
            placed += ring.put_back(_read(ring, slot_dir, segment))
        except (ValueError, safetensors.SafetensorError) as error:
            raise DamagedCheckpointError("damaged.file-unreadable", name=segment.path, why=error) from error
    if placed != int(ring.sizes.sum()):
        raise DamagedCheckpointError("damaged.rows-missing", placed=placed, rows=int(ring.sizes.sum()))


def _read(ring: Ring, slot_dir: Path, segment: RowsFile) -> Block:
    if PurePosixPath(segment.path).is_absolute() or ".." in PurePosixPath(segment.path).parts:
        raise DamagedCheckpointError("damaged.rows-outside", path=segment.path)
    try:
        data = read_regular(slot_dir / segment.path, segment.bytes + 1, follow=True)
    except OSError as error:
        raise DamagedCheckpointError("damaged.file-unreadable", name=segment.path, why=error.strerror) from error
    if len(data) != segment.bytes or hashlib.sha256(data).hexdigest() != segment.sha256:
        raise DamagedCheckpointError("damaged.rows-changed", path=segment.path, found=len(data), bytes=segment.bytes)
    if not all(0 <= count <= ring.capacity for count in segment.counts):
        raise DamagedCheckpointError("damaged.rows-too-many", path=segment.path, capacity=ring.capacity)
    arrays = unpacked(safetensors.numpy.load(data), ring.fields, sum(segment.counts))
    return Block(segment.starts, segment.counts, arrays)
