"""Whether a `.wandb` file is whole: `wandb` writes it in a process of its own, and does not tell of a full disk.

The file is a log in LevelDB's format (github.com/google/leveldb, doc/log_format.md) behind a header of seven bytes; its
records are protocol buffers, the last of which says that the run has ended.
"""

from __future__ import annotations

import importlib
import struct
from pathlib import Path

HEADER = b":W&B\xe1\xbe\x00"
BLOCK_BYTES = 32_768
#: A chunk's head: checksum, length, kind.
_HEAD = struct.Struct("<IHB")
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def last_record(data: bytes) -> bytes | None:
    """The last record of a log, None where the log breaks off within one. Pure. Errors: ValueError: another format."""
    if not data.startswith(HEADER):
        raise ValueError("not a log of wandb as we know it")
    at, record, is_whole = len(HEADER), b"", False
    while at < len(data):
        if BLOCK_BYTES - at % BLOCK_BYTES < _HEAD.size:  # too little for a head: the rest of a block is empty
            at += BLOCK_BYTES - at % BLOCK_BYTES
            continue
        if at + _HEAD.size > len(data):
            return None
        _, length, kind = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if at + length > len(data):
            return None
        record = data[at : at + length] if kind in {_WHOLE, _FIRST} else record + data[at : at + length]
        is_whole = kind in {_WHOLE, _LAST}
        at += length
    return record if is_whole else None


def has_ended(path: Path) -> bool:
    """Whether the run's end reached the disk, and so all before it. True for a format that we do not know.

    Errors: OSError.
    """
    # Optional; and what is in it hangs on protobuf's version, which a type checker cannot know.
    records = importlib.import_module("wandb.proto.wandb_internal_pb2")
    try:
        record = last_record(path.read_bytes())
    except ValueError:
        return True
    return record is not None and bool(records.Record.FromString(record).HasField("exit"))
