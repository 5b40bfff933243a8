"""`syncd pull --rsync`: policies, curves and checkpoints by the `rsync` program, where none of ours may run over there.

It is a few rsyncs, each with a login: which policies are the newest, their manifests, their weights, curves. They come
to `DIR/part/rsync`, which nobody reads; from there `syncd.laptop.mirror` lets in what it has checked. Nothing is sent.
The options are those that rsync 3.1 and macOS's openrsync have too.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from anchorleg.words import sized
from syncd.errors import (
    DamagedPolicyError,
    GoneError,
    NoRoomError,
    RemoteError,
    StorageError,
    SyncError,
)
from syncd.laptop.exchange import ExchangeCounts
from syncd.laptop.mirror import Arrival, Mirror
from syncd.remote import Remote
from syncd.shared.curves import MAX_CHUNK_BYTES
from syncd.shared.layout import SavedAt, Shared, is_nearly_full, newest_saved, path_in_run, run_id_of, slots_in
from syncd.shared.manifest import MAX_MANIFEST_BYTES
from syncd.store import hinted, parse_manifest
from syncd.transports.openssh import EXIT_SSH, explain, ssh_words, typed_ssh
from syncd.wire.arrivals import MAX_CURVES_BYTES, MAX_FILES, Offer
from syncd.wire.protocol import REFUSED_PREFIX
from syncd.wire.streams import run_bounded

#: rsync's own limit: a transfer that stands still so long is broken.
SILENCE_S = 20
#: Of one rsync, which may move gigabytes.
LONGEST_S = 6 * 3600.0
#: Where nothing else bounds what comes: a tree of small files, and a run's record.
_MOST_BYTES, _RECORD_BYTES = 2**30, 16 * 2**20
#: What arrived of a large file before the line broke stays, and is gone on with.
_PARTIAL = "--partial-dir=.part"
_VANISHED = "files were removed there before they could be fetched; the next pull fetches newer ones"
_SLOT = "--include=/v1/runs/*/*/"
_SLOTS = ("--include=/v1/", "--include=/v1/runs/", "--include=/v1/runs/*/", _SLOT)
_HINTS = (*_SLOTS, "--include=LATEST.json", f"{_SLOT}averaged/", "--exclude=*")
_CURVES = (*_SLOTS, f"{_SLOT}metrics/", f"{_SLOT}metrics/*.jsonl", "--exclude=*")
#: Of a run folder's `slots/`: the folders of checkpoints, empty.
_SAVED = (
    "--include=/*/", "--include=/*/attempts/", "--include=/*/attempts/*/", "--include=/*/attempts/*/checkpoints/",
    "--include=/*/attempts/*/checkpoints/*/", "--exclude=*",
)  # fmt: skip
#: rsync(1), EXIT VALUES: not all files came.
_PARTLY = (23, 24)
_NO_RSYNC = re.compile(r"rsync: (command )?not found|rsync: No such file or directory$", re.MULTILINE)
#: A path that every shell takes for one word. rsync before 3.2.4 protects others only where it is told to.
_PLAIN = re.compile(r"[A-Za-z0-9_./+@%=:,-]*")


class Rsync:
    """Runs `rsync` over ssh. `folder`: for files of its own.

    Errors: RemoteError where there is no `rsync` here.
    """

    def __init__(self, remote: Remote, folder: Path) -> None:
        if shutil.which("rsync") is None:
            raise RemoteError("rsync.not-installed")
        self.remote, self.folder = remote, folder

    def bring(
        self, path: str, into: Path, words: Sequence[str], *, files: int = MAX_FILES, size: int = _MOST_BYTES
    ) -> bool:
        """Bring what the folder `path` has, below that of the remote, into the folder `into`; whether all of it came.

        `files`, `size`: what may lie in `into` afterwards. Errors: GoneError where there is no such folder;
        UnreachableError, LoginRefusedError, HostKeyError, RemoteError, StorageError; OSError.
        """
        into.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # rsync splits the words of -e by rules of its own, openrsync by others; a file spares us both.
        (self.folder / "ssh").write_text(f'exec {shlex.join(ssh_words(self.remote))} "$@"\n', encoding="utf-8")
        there = posixpath.join(self.remote.path, path)
        source = str(self.remote.model_copy(update={"path": there}))
        secluded = [] if _PLAIN.fullmatch(there) else ["-s"]
        command = ["rsync", "-rt", f"--timeout={SILENCE_S}", *secluded, "-e", "sh ./ssh", *words]
        child = subprocess.Popen(
            [*command, "--", source, f"{into}/"], cwd=self.folder, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
            env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip

        def check() -> None:
            if is_nearly_full(into):
                raise StorageError("mirror.disk-full", path=into)
            found, came = _usage(into)
            if found > files or came > size:
                raise RemoteError("rsync.too-much", host=self.remote.host, files=files, size=sized(size))

        done = run_bounded(child, self.remote.host or "", LONGEST_S, check)
        if done.returncode and done.returncode not in _PARTLY:
            raise self._why(done.stderr)
        if done.returncode and "change_dir" in done.stderr:
            raise GoneError("rsync.no-folder", host=self.remote.host, path=there)
        return not done.returncode

    def bring_names(self, sizes: dict[str, int], into: Path) -> None:
        """Bring files by their paths, none larger than the largest of `sizes`; what is gone is passed over."""
        if sizes:
            names = self.folder / "names"
            names.write_text("".join(f"{name}\n" for name in sizes), encoding="utf-8")
            words = [_PARTIAL, f"--max-size={max(sizes.values())}", f"--files-from={names}"]
            self.bring("", into, words, size=2 * sum(sizes.values()) + _usage(into)[1])

    def _why(self, said: str) -> SyncError:
        place = self.remote.host or ""
        lines = [line.strip() for line in said.splitlines() if not line.startswith("rsync error")]
        if refused := [line for line in lines if line.startswith(REFUSED_PREFIX)]:
            return RemoteError("server.refused-by-gate", place=place, why=refused[0][:300])
        if _NO_RSYNC.search(said):
            return RemoteError("rsync.not-there", place=place)
        if "No space left" in said or "Disk quota" in said:
            return StorageError("rsync.disk-full")
        return explain(place, EXIT_SSH, "\n".join(lines), typed=typed_ssh(self.remote))


class RsyncPull:
    """Brings what is new into the mirror `folder`. `counts`: what came so far. `arrived` is told of each policy."""

    def __init__(self, remote: Remote, folder: Path, *, arrived: Callable[[Arrival], None] = lambda _: None) -> None:
        self.counts = ExchangeCounts()
        self.folder = folder
        self._mirror, self._arrived = Mirror(folder), arrived
        self._rsync = Rsync(remote, folder / "part" / "rsync")
        self._stage = Shared(self._rsync.folder / "stage")

    def look(self) -> None:
        """Fetch what is new; what vanished meanwhile is a trouble in `counts`. Errors: SyncError; OSError."""
        self._mirror.tidy()
        try:
            self._rsync.bring("", self._stage.path, [*_HINTS, f"--max-size={MAX_MANIFEST_BYTES}"])
        except GoneError as error:
            raise RemoteError("rsync.no-shared-folder", why=error) from None
        offers = self._manifests()
        self._rsync.bring_names(self._weights(offers), self._stage.path)
        self._let_in(offers)
        words = [*_CURVES, f"--max-size={MAX_CHUNK_BYTES}", f"--compare-dest={self._mirror.shared.path}"]
        try:
            self._rsync.bring("", self._stage.path, words, size=MAX_CURVES_BYTES)
        except RemoteError as error:
            self.counts.trouble(f"some curves are left out ({error})")
        curves = [file for slot in self._stage.slots() for file in sorted(slot.metrics.glob("*.jsonl"))]
        self._let_in(self._wanted([self._offer(file, "metrics") for file in curves if file.is_file()], changed=True))
        shutil.rmtree(self._stage.path, ignore_errors=True)

    def _manifests(self) -> list[Offer]:
        """Fetch the manifests of the newest policies that the mirror lacks."""
        places = [each for slot in self._stage.slots() for each in (slot, slot.averaged)]
        newest = {place: version for place in places if (version := hinted(place))}
        self.counts.offered = sum(not place.is_averaged for place in newest)
        files = {place.manifest(version) for place, version in newest.items()}
        lacked = self._wanted([Offer(self._path(file), 0, None, "manifest") for file in files])
        self._rsync.bring_names({offer.path: MAX_MANIFEST_BYTES for offer in lacked}, self._stage.path)
        here = [file for offer in lacked if (file := self._stage.path / offer.path).is_file()]
        if len(here) < len(lacked):
            self.counts.trouble(_VANISHED)
        return self._wanted([self._offer(file, "manifest") for file in here])

    def _weights(self, offers: Sequence[Offer]) -> dict[str, int]:
        """Of the weights of these policies those that the mirror lacks: path → bytes."""
        sizes: dict[str, int] = {}
        for offer in offers:
            if (target := self._mirror.target(offer)) is None:
                continue
            try:
                blobs = parse_manifest((self._stage.path / offer.path).read_bytes()).blobs
            except DamagedPolicyError:
                continue  # the mirror says so
            for blob in blobs:
                file = target.place.blob(blob.sha256)
                if not (file.exists() or target.slot.blob(blob.sha256).exists()):
                    sizes[file.relative_to(self._mirror.shared.path).as_posix()] = blob.bytes
        return sizes

    def _wanted(self, offers: list[Offer], *, changed: bool = False) -> list[Offer]:
        return self._mirror.wanted(offers, changed=changed, say=self.counts.trouble)

    def _let_in(self, offers: Sequence[Offer]) -> None:
        for offer in offers:
            try:
                arrival = self._mirror.bring(offer, self._fetch)
            except GoneError:
                self.counts.trouble(_VANISHED)
            except (DamagedPolicyError, NoRoomError) as error:
                self.counts.trouble(str(error))
            else:
                if self.counts.add(arrival):
                    self._arrived(arrival)

    def _fetch(self, offer: Offer, part: Path) -> None:
        """As `Session.fetch`, of what has come."""
        file = self._stage.path / offer.path
        if offer.kind == "blob" and not file.is_file():  # the mirror has one that its disk has damaged
            self._rsync.bring_names({offer.path: offer.bytes}, self._stage.path)
        try:
            shutil.copy2(file, part)  # with its time, by which the next look knows it
        except (FileNotFoundError, IsADirectoryError):
            raise GoneError("file.gone", path=offer.path) from None
        with open(part, "rb") as copied:
            os.fsync(copied.fileno())

    def _path(self, file: Path) -> str:
        return file.relative_to(self._stage.path).as_posix()

    def _offer(self, file: Path, kind: Literal["manifest", "metrics"]) -> Offer:
        return Offer(self._path(file), file.stat().st_size, None, kind)


class RsyncCheckpoints:
    """See `CheckpointSource`. `remote`: the shared folder, beside whose run's other folders they lie."""

    def __init__(self, remote: Remote, folder: Path) -> None:
        self._remote = remote
        run = posixpath.dirname(remote.path.rstrip("/")) or "."
        self._rsync = Rsync(remote.model_copy(update={"path": run}), folder / "part" / "rsync")

    def saved(self) -> dict[int, list[SavedAt]]:
        """See `CheckpointSource`."""
        if posixpath.basename(self._remote.path.rstrip("/")) != "shared":
            raise RemoteError("checkpoint.no-run-folder", remote=self._remote)
        names = self._rsync.folder / "saved"
        shutil.rmtree(names, ignore_errors=True)
        try:
            self._rsync.bring("slots/", names, _SAVED)
        except GoneError as error:
            raise RemoteError("checkpoint.not-listed", why=error) from None
        return {slot: saved for slot in slots_in(names) if (saved := newest_saved(names, slot))}

    def run_id(self) -> str | None:
        """See `CheckpointSource`."""
        record = self._rsync.folder / "record"
        try:
            self._rsync.bring("", record, ["--include=/run.json", "--exclude=*", f"--max-size={_RECORD_BYTES}"])
            return run_id_of(record)
        finally:
            shutil.rmtree(record, ignore_errors=True)  # it has the run's environment

    def bring(self, slot: int, saved: SavedAt, arriving: Path) -> bool:
        """See `CheckpointSource`."""
        try:
            return self._rsync.bring(f"{path_in_run(slot, saved)}/", arriving, [_PARTIAL], size=sys.maxsize)
        except GoneError:
            return False


def _usage(folder: Path) -> tuple[int, int]:
    """(number, bytes) of the files and folders below `folder`. What vanishes meanwhile counts nothing."""
    files = size = 0
    for path, folders, names in os.walk(folder):
        files += len(folders) + len(names)
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                size += os.lstat(os.path.join(path, name)).st_size
    return files, size
