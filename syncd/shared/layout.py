"""Where things lie below one shared folder, and how files are written there: readable to its group (`anchorleg.files`).

::

    $SHARED/v1/runs/<run_id>/<slot>/manifests/<attempt>-<seq>.json  blobs/ab/<sha256>  LATEST.json  metrics/
    $SHARED/v1/runs/<run_id>/<slot>/averaged/                        the same of the averaged policies, without metrics/
    $SHARED/v1/inbox/<who>/                                          see `syncd.shared.inbox`
    $SHARED/v1/incoming/<run_id>/<slot>/                             see `syncd.shared.incoming`
    $SHARED/v1/accounts/                                             see `syncd.shared.incoming`

A laptop's mirror has the same `v1/runs` tree. Everything here is a path or the making of one; nothing is judged.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from anchorleg.files import create_exclusive, file_mode, read_json_or_none, to_json, write_bytes
from anchorleg.output import ReaderGoneError
from syncd.errors import ConfigError, StorageError

Hint = TypeVar("Hint", bound=BaseModel)


#: Run ids and contributors' names: safe as a folder name, in a command line and in a table; no dot in front.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}")
SHA256 = re.compile(r"[0-9a-f]{64}")
#: Slot numbers as folder names: as they are written, no zeros in front, so that one slot has one name.
SLOT = re.compile(r"0|[1-9][0-9]{0,5}")

#: The folder, in a slot's, of policies that are the moving average of those that it trains.
AVERAGED = "averaged"

VERSION_TEXT = re.compile(r"(0|[1-9][0-9]{0,5})-(0|[1-9][0-9]{0,8})")
_VERSION_FILE = re.compile(r"([0-9]{6})-([0-9]{9})\.json")


def checked_name(name: str, what: str) -> str:
    """`name` if it can name a run or a contributor. `what` is for the sentence. Errors: ValueError."""
    if not NAME.fullmatch(name):
        raise ValueError(f"{what} {name[:80]!r}: use letters, digits, '.', '_' and '-' (81 at most, no '.' first)")
    return name


def checked_sha256(text: str) -> str:
    """`text` if it is 64 lower-case hex digits. Errors: ValueError."""
    if not SHA256.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is not a sha256")
    return text


class Version(NamedTuple):
    """Which publication of a slot: the attempt that made it and the count within it. Later ones compare greater."""

    attempt: int
    seq: int

    def __str__(self) -> str:
        return f"{self.attempt}-{self.seq}"

    @property
    def file_name(self) -> str:
        """Name of its manifest: `000003-000000017.json`, so that names sort as versions do."""
        return f"{self.attempt:06d}-{self.seq:09d}.json"

    @classmethod
    def parse(cls, text: str) -> Version:
        """From `3-17`. Errors: ValueError."""
        found = VERSION_TEXT.fullmatch(text)
        if not found:
            raise ValueError(f"{text[:40]!r} is not a version, such as 3-17")
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def of_file(cls, name: str) -> Version | None:
        """From a manifest's file name; None where it is not one."""
        found = _VERSION_FILE.fullmatch(name)
        return cls(int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True)
class SlotPlace:
    """The folder of one slot's policies and curves."""

    path: Path
    run_id: str
    slot: int

    @property
    def manifests(self) -> Path:
        """Folder of the manifests, `000003-000000017.json` each."""
        return self.path / "manifests"

    @property
    def blobs(self) -> Path:
        """Folder of the blobs, in folders by the first two digits of their sha256."""
        return self.path / "blobs"

    @property
    def latest(self) -> Path:
        """The hint at the newest version."""
        return self.path / "LATEST.json"

    @property
    def metrics(self) -> Path:
        """Folder of the curves, `<name>-<chunk>.jsonl` each."""
        return self.path / "metrics"

    @property
    def averaged(self) -> SlotPlace:
        """Where the slot's averaged policies lie, as its own lie here: no reader of these meets them."""
        return SlotPlace(self.path / AVERAGED, self.run_id, self.slot)

    @property
    def is_averaged(self) -> bool:
        """Whether this is the `averaged` of a slot."""
        return self.path.name == AVERAGED

    @property
    def slot_itself(self) -> SlotPlace:
        """The slot's own place, of its `averaged` too."""
        return SlotPlace(self.path.parent, self.run_id, self.slot) if self.is_averaged else self

    @property
    def live(self) -> Path:
        """Folder of agents at play: `<lane>.ring` and `<sha256>.scene`."""
        return self.path / "live"

    def manifest(self, version: Version) -> Path:
        """Path of one version's manifest."""
        return self.manifests / version.file_name

    def blob(self, sha256: str) -> Path:
        """Path of the blob with this sum. Errors: ValueError where it is no sum."""
        return self.blobs / checked_sha256(sha256)[:2] / sha256


@dataclass(frozen=True)
class Shared:
    """One `$SHARED` (or a laptop's mirror of it): the paths below it."""

    path: Path

    @classmethod
    def locate(cls, start: Path) -> Shared:
        """The shared folder that a user means by `start`: itself, or the `shared/` of a run folder.

        Errors: ConfigError with one sentence where it is neither.
        """
        for candidate in (start, start / "shared"):
            if (candidate / "v1").is_dir():
                return cls(candidate)
        if not start.is_dir():
            raise ConfigError("shared.no-folder", path=start)
        raise ConfigError("shared.not-one", path=start)

    @property
    def runs(self) -> Path:
        """Folder of all runs."""
        return self.path / "v1" / "runs"

    @property
    def inbox_folder(self) -> Path:
        """Folder of all contributors' inboxes."""
        return self.path / "v1" / "inbox"

    @property
    def accounts(self) -> Path:
        """Folder that says which inbox is which account's."""
        return self.path / "v1" / "accounts"

    @property
    def incoming_folder(self) -> Path:
        """Folder of all that other accounts of this machine give."""
        return self.path / "v1" / "incoming"

    def incoming(self, run_id: str, slot: int) -> Path:
        """Where other accounts of this machine put segments for one slot. Errors: ValueError, as for `slot`."""
        if not SLOT.fullmatch(str(slot)):
            raise ValueError(f"slot {slot!r} is not a slot number")
        return self.incoming_folder / checked_name(run_id, "run id") / str(slot)

    def slot(self, run_id: str, slot: int) -> SlotPlace:
        """The place of one slot; it need not exist. Errors: ValueError where the name or the number is none."""
        checked_name(run_id, "run id")
        if not SLOT.fullmatch(str(slot)):
            raise ValueError(f"slot {slot!r} is not a slot number")
        return SlotPlace(path=self.runs / run_id / str(slot), run_id=run_id, slot=int(slot))

    def slots(self) -> list[SlotPlace]:
        """All slots that exist, sorted by run and number. Foreign names and links are passed over."""
        return [
            self.slot(run_id, int(name))
            for run_id in folder_names(self.runs)
            if NAME.fullmatch(run_id)
            for name in sorted((n for n in folder_names(self.runs / run_id) if SLOT.fullmatch(n)), key=int)
        ]


def folder_names(folder: Path) -> list[str]:
    """Names of the folders in `folder`, sorted; links are none; [] where `folder` is absent or vanishes."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


class FoundFile(NamedTuple):
    """A file of a folder. `written_at` is its mtime; `arrived_at` its ctime, which a rename sets and no writer chooses.
    Unix seconds.
    """

    path: Path
    bytes: int
    written_at: float
    arrived_at: float


def files_in(folder: Path, is_ours: Callable[[str], Any] = bool) -> list[FoundFile]:
    """Regular files with our names in `folder`, no links; what vanishes meanwhile is passed over. Errors: OSError."""
    found: list[FoundFile] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not is_ours(entry.name) or not entry.is_file(follow_symlinks=False):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    found.append(FoundFile(Path(entry.path), status.st_size, status.st_mtime, status.st_ctime))
    except (FileNotFoundError, NotADirectoryError):
        return found
    return found


def put(path: Path, data: bytes) -> None:
    """Replace `path` by `data` durably, 0640 inside a setgid folder. Errors: OSError; the old one is untouched then."""
    write_bytes(path, data, mode=file_mode(path.parent))


def put_json(path: Path, value: Any) -> None:
    """`put` of `value` as JSON."""
    put(path, to_json(value))


def put_once(path: Path, data: bytes) -> bool:
    """Create `path` with `data` unless it exists; whether we made it. Modes as in `put`. Errors: OSError."""
    return create_exclusive(path, data, mode=file_mode(path.parent))


def read_hint(kind: type[Hint], path: Path) -> Hint | None:
    """The model `kind` in the JSON file `path`, where a file is only a hint; None where it is absent or damaged."""
    try:
        return kind.model_validate(read_json_or_none(path))
    except ValidationError:
        return None


#: Checkpoints and people at the machine need it more. On a small disk, this share of it.
FREE_BYTES = 1024**3
FREE_SHARE = 0.02


def is_nearly_full(folder: Path, added_bytes: int = 0) -> bool:
    """Whether the disk of `folder` would have too little left after so many bytes more. Errors: OSError."""
    told = os.statvfs(folder)
    left = told.f_bavail * told.f_frsize - added_bytes
    return left < min(FREE_BYTES, FREE_SHARE * told.f_blocks * told.f_frsize)


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """What a disk refuses is a StorageError. `folder`: the mirror, named where the system names no file."""
    try:
        yield
    except ReaderGoneError:
        raise
    except OSError as error:
        where, why = error.filename or folder, error.strerror or error
        raise StorageError("mirror.disk-error", path=where, why=why) from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What a disk refuses is a StorageError that says `path` cannot be written."""
    try:
        yield
    except OSError as error:
        raise StorageError("storage.unwritable", path=path, why=error.strerror) from error


def make_own_folder(path: Path) -> None:
    """Make `path` and what is missing above it. Errors: StorageError."""
    try:
        path.mkdir(parents=True, mode=0o700, exist_ok=True)
    except OSError as error:
        raise StorageError("storage.no-folder", path=path, why=error.strerror) from error


#: Of a slot so many are told of: a checkpoint may be cleared away while it comes, for a newer one.
MOST_TOLD = 3
NUMBER = "[0-9]{1,15}"
#: A file of a checkpoint, below the run folder.
SAVED_FILE = re.compile(
    rf"slots/({SLOT.pattern})/attempts/{NUMBER}/checkpoints/{NUMBER}/[A-Za-z0-9][A-Za-z0-9._-]{{0,160}}"
)


class SavedAt(NamedTuple):
    """Which checkpoint of a slot. `step` as its folder is called: the trainer writes zeros before it."""

    attempt: int
    step: str


def path_in_run(slot: int, saved: SavedAt) -> str:
    """Where it lies in its run folder."""
    return f"slots/{slot}/attempts/{saved.attempt}/checkpoints/{saved.step}"


def run_folder_of(shared: Path) -> Path | None:
    """The run folder whose own shared folder this is; None: nothing says where it is."""
    return shared.parent if shared.name == "shared" else None


def slots_in(slots: Path) -> list[int]:
    """The slots that `<run folder>/slots` has. Errors: OSError."""
    return sorted(int(name) for name in folder_names(slots) if SLOT.fullmatch(name))


def newest_saved(slots: Path, slot: int) -> list[SavedAt]:
    """The newest checkpoints of a slot, the newest first; one that is not whole has another name. Errors: OSError."""
    attempts, found = slots / str(slot) / "attempts", list[SavedAt]()
    for attempt in _numbers(attempts):
        found += [SavedAt(int(attempt), step) for step in _numbers(attempts / attempt / "checkpoints")]
        if len(found) >= MOST_TOLD:
            break
    return found[:MOST_TOLD]


def run_id_of(run: Path) -> str | None:
    """The id of the run in the folder `run`, by its `run.json`; None where that is not there, or not for us."""
    value: Any = read_json_or_none(run / "run.json")
    run_id = value.get("run_id") if isinstance(value, dict) else None
    return run_id if isinstance(run_id, str) and NAME.fullmatch(run_id) else None


def _numbers(folder: Path) -> list[str]:
    return sorted((name for name in folder_names(folder) if re.fullmatch(NUMBER, name)), key=int, reverse=True)
