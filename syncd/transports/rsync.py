"""rsync over one shared ssh connection: for sites that allow no program of ours over there, and for bulk.

Two phases, so that no manifest is seen whose blob is missing: what `LATEST.json` names, then those files by name. The
curves come after them, a minute of them at each look and with bounds of their own: however many, they keep no policy
back. Only options that macOS's openrsync has too. It polls; it cannot acknowledge verdicts, so each listing tells all
of them again; a segment that was seen before is for the learner to recognise. Where the login is another account than
the folder's owner, segments go to `incoming/` (`syncd.shared.incoming`), and no verdicts are told: nobody says over
there which inbox is ours.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from anchorleg.files import read_json_or_none
from anchorleg.printable import printable
from syncd.errors import GoneError, StorageError
from syncd.remote import Remote
from syncd.shared.inbox import MAX_SEGMENT_BYTES
from syncd.shared.incoming import name_of
from syncd.shared.layout import SHA256, Shared, SlotPlace
from syncd.shared.manifest import MAX_MANIFEST_BYTES
from syncd.store import hinted
from syncd.transports.bringing import RUNS, SLOTS, CurveStage, bring_names, bring_runs
from syncd.transports.runner import (
    BULK_TIMEOUT_S,
    FILE_ERROR_CODE,
    NO_FOLDER_CODE,
    PARTIAL_CODES,
    PARTIAL_DIR,
    PARTIAL_FOLDER,
    RETRY_S,
    SMALL_TIMEOUT_S,
    Done,
    FolderBounds,
    Runner,
    complaint,
)
from syncd.wire.arrivals import read_segment
from syncd.wire.transport import (
    MAX_FILES,
    ConnectionFacts,
    News,
    Offer,
    Receipt,
    SegmentVerdict,
    Transport,
)
from syncd.wire.viewing import Viewing

#: A look costs 40 ms of CPU here and 10 there; more often helps nobody who chose rsync.
LOOK_EVERY_S = 2.0
_DEATH_LOOK_S = 0.2
#: What is looked at lies in our temporary folder, which may be memory: as many files as a mirror has.
STAGE_FILES = MAX_FILES
STAGE_BYTES = 2**30
#: A verdict has 200 bytes. rsync passes over what is larger than it was told.
_VERDICT_BYTES = 64 * 1024

#: What of a slot is looked at each time: not the blobs, not the 1,500 manifests of a day.
_HINTS = (
    *SLOTS,
    "--include=/*/*/LATEST.json",
    "--include=/*/*/averaged/",
    "--include=/*/*/averaged/LATEST.json",
    "--exclude=*",
)


class RsyncTransport:
    """See `Transport`."""

    name = "rsync"

    def __init__(self, remote: Remote, client: str, bwlimit: int = 0, stage_files: int = STAGE_FILES) -> None:
        self.chosen_because = ""
        self.better: Callable[[], Transport] | None = None
        self.live: Viewing | None = None
        self.tick: Callable[[], None] = lambda: None
        self._client, self._stage_files = client, stage_files
        self._seen: dict[str, tuple[int, int]] = {}
        self._counted: set[str] = set()
        self._names: dict[str, str] = {}
        self._looked = 0.0
        self._runner = Runner(remote, bwlimit)
        self._runner.tick = lambda: self.tick()  # noqa: PLW0108 - ours is set later
        self._stage = Shared(self._runner.folder / "stage")
        self._curves = CurveStage(self._runner, stage_files)

    # --- the other side's files ------------------------------------------------------------------------------------

    def listing(self) -> News:
        """See `Transport`."""
        self._seen, self._counted = {}, set()
        return self._look()

    def probe(self) -> None:
        """Whether a look can be had; nothing is brought: the first look takes longer. Errors: those of `listing`."""
        bring_runs(self._runner, self._stage, ["--exclude=*"], SMALL_TIMEOUT_S, self._bounds(self._stage.path))

    def wait(self, timeout_s: float) -> News:
        """See `Transport`. It looks at most every `LOOK_EVERY_S`, unless the last look left something to come."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            self._runner.beat()
            self.tick()
            time.sleep(min(_DEATH_LOOK_S, left_s))
        is_due = self._curves.more or time.monotonic() - self._looked >= LOOK_EVERY_S
        return self._look() if is_due else News()

    def counted(self, verdicts: Sequence[SegmentVerdict]) -> None:
        """See `Transport`."""
        self._counted |= {verdict.sha256 for verdict in verdicts}

    def interrupt(self) -> None:
        """See `Transport`."""

    def _look(self) -> News:
        self._looked, self._curves.more = time.monotonic(), False
        if self._bring_hints():
            self._curves.bring()
        policies = [offer for place in self._places() for offer in self._policies(place)]
        curves = [offer for place in self._curves.shared.slots() for offer in self._parts(place)]
        return News((*policies, *curves), tuple(self._verdicts()), self._curves.left_out, self._curves.more)

    def _places(self) -> list[SlotPlace]:
        """Where policies may lie: of each slot its own, and its averaged ones."""
        return [each for place in self._stage.slots() for each in (place, place.averaged)]

    def _bring_hints(self) -> bool:
        """Fetch which policies are the newest, and their manifests; whether there are runs."""
        runs, bounds = self._stage.runs, self._bounds(self._stage.path)
        for place in self._places():
            # rsync takes a file of the same size and the same second for the same: hints are always fetched.
            place.latest.unlink(missing_ok=True)
        words = [*_HINTS, f"--max-size={MAX_MANIFEST_BYTES}"]
        if not bring_runs(self._runner, self._stage, words, BULK_TIMEOUT_S, bounds):
            return False
        versions = ((place, hinted(place)) for place in self._places())
        wanted = [place.manifest(version) for place, version in versions if version]
        missing = [file.relative_to(runs).as_posix() for file in wanted if not file.exists()]
        if missing:
            bring_names(self._runner, missing, runs, MAX_MANIFEST_BYTES, bounds)
        return True

    def _bounds(self, folder: Path) -> FolderBounds:
        return FolderBounds(folder, self._runner.place, self._stage_files, STAGE_BYTES)

    def _policies(self, place: SlotPlace) -> Iterator[Offer]:
        """The newest policy of a place, where it is new since the last look."""
        version = hinted(place)
        sealed = place.manifest(version) if version else None
        if sealed is not None and sealed.exists() and self._is_new(sealed):
            content = sealed.read_bytes()
            path = sealed.relative_to(self._stage.path).as_posix()
            yield Offer(path, len(content), hashlib.sha256(content).hexdigest(), "manifest")
        for file in place.manifests.glob("*.json") if version else ():
            if file != sealed:  # overtaken: the stage must not grow with every policy
                file.unlink(missing_ok=True)
                self._seen.pop(str(file), None)

    def _parts(self, place: SlotPlace) -> Iterator[Offer]:
        """The parts of a slot's curves that are new since the last look."""
        for file in sorted(place.metrics.glob("*.jsonl")):
            if self._is_new(file):
                path = file.relative_to(self._curves.shared.path).as_posix()
                yield Offer(path, file.stat().st_size, None, "metrics")

    def _is_new(self, file: Path) -> bool:
        now = file.stat()
        mark = (now.st_size, now.st_mtime_ns)
        is_new = self._seen.get(str(file)) != mark
        self._seen[str(file)] = mark
        return is_new

    def _verdicts(self) -> Iterator[SegmentVerdict]:
        folder = self._runner.folder / "verdicts"
        folder.mkdir(exist_ok=True)
        there = self._runner.there(f"v1/inbox/{self._client}/verdicts/")
        words = ["-rt", "--delete", f"--max-size={_VERDICT_BYTES}", there, f"{folder}/"]  # over there the oldest go
        self._runner.insist(self._runner.run(words, bounds=self._bounds(folder)), *PARTIAL_CODES)
        files = sorted(folder.glob("*.json"))
        self._counted &= {file.stem for file in files}
        for file in files:
            if file.stem in self._counted or not SHA256.fullmatch(file.stem):
                continue  # nobody acknowledges them here: a week of them may lie there
            value: Any = read_json_or_none(file)
            if isinstance(value, dict):
                yield SegmentVerdict(
                    file.stem, value.get("accepted") is True, printable(str(value.get("reason", "")), 100)
                )

    def fetch(self, offer: Offer, part: Path) -> None:
        """See `Transport`."""
        name = offer.path.removeprefix(f"{RUNS}/")
        if name == offer.path or ".." in offer.path:
            raise GoneError(f"{offer.path} is nothing that is offered")
        try:
            if offer.kind == "blob":
                self._fetch_blob(name, offer.bytes, part)
            else:
                stage = self._curves.shared if offer.kind == "metrics" else self._stage
                shutil.copyfile(stage.path / offer.path, part)
            _sync(part)
        except FileNotFoundError:
            raise GoneError(f"{offer.path} is gone over there") from None
        except OSError as error:
            raise StorageError(f"{part} cannot be written ({error.strerror})") from error

    def _fetch_blob(self, name: str, length: int, part: Path) -> None:
        """Errors: FileNotFoundError where it is gone; OSError."""
        work = part.with_name(f"{part.name}.rsync")
        final = work / name
        unfinished = final.parent / PARTIAL_FOLDER / final.name
        unfinished.parent.mkdir(parents=True, exist_ok=True)
        if part.exists():
            os.replace(part, unfinished)
        try:
            bring_names(self._runner, [name], work, length, self._bounds(work))
        finally:
            arrived = final.exists()
            if arrived or unfinished.exists():
                os.replace(final if arrived else unfinished, part)
            shutil.rmtree(work, ignore_errors=True)
        if not arrived or part.stat().st_size != length:
            part.unlink(missing_ok=True)
            raise FileNotFoundError

    # --- our segments -----------------------------------------------------------------------------------------------

    def send(self, segments: Sequence[tuple[Path, str, int]]) -> list[Receipt]:
        """See `Transport`. All in one push of a folder: a single file onto an existing name fails in rsync 3.5.0."""
        outgoing = self._runner.folder / "outgoing"
        shutil.rmtree(outgoing, ignore_errors=True)
        try:
            receipts = [_stage_segment(path, outgoing / run_id / str(slot)) for path, run_id, slot in segments]
        except OSError as error:
            raise StorageError(f"{outgoing} cannot be written ({error.strerror})") from error
        if not outgoing.exists():
            return receipts
        pushed = self._push(outgoing)
        for index, (path, run_id, slot) in enumerate(segments):
            if receipts[index].stored:
                receipts[index] = pushed[outgoing / run_id / str(slot) / path.name]
        return receipts

    def _push(self, outgoing: Path) -> dict[Path, Receipt]:
        """What became of each file of `outgoing`, <run>/<slot>/<sha256>."""

        def push() -> Done:
            there = self._runner.there(f"v1/inbox/{self._client}/new/")
            words = ["-rt", PARTIAL_DIR, "--ignore-existing", f"{outgoing}/", there]
            return self._runner.run(words, timeout_s=BULK_TIMEOUT_S)

        done = push()
        if done.returncode == FILE_ERROR_CODE and "mkdir" in done.stderr:  # our first segment over there
            skeleton = self._runner.folder / "skeleton"
            (skeleton / "v1" / "inbox" / self._client / "new").mkdir(parents=True, exist_ok=True)
            made = self._runner.run(["-r", f"{skeleton}/", self._runner.there("")])
            if "Permission denied" in made.stderr:
                return self._deposit(outgoing)
            done = push()
        self._runner.insist(done, *PARTIAL_CODES, FILE_ERROR_CODE)
        # After another end than 0 nobody knows which of them arrived.
        receipt = Receipt(False, complaint(done), RETRY_S) if done.returncode else Receipt(True)
        return dict.fromkeys(outgoing.glob("*/*/*"), receipt)

    def _deposit(self, outgoing: Path) -> dict[Path, Receipt]:
        """Put segments where accounts other than the owner's put them: as `_push`, each slot for itself.

        Files alone travel, with their modes (`-p`): the folders are the owner's, and the learner must read the files
        whatever the umask over there is. rsync's temporary files tell the names: whoever is there first with a file
        makes that one fail, and it has another name next time. The others keep theirs: what has arrived stays one file.
        """
        found: dict[Path, Receipt] = {}
        for folder in sorted(outgoing.glob("*/*")):
            files = sorted(folder.iterdir())
            for file in files:
                self._names.setdefault(file.name, name_of(file.name))
            named = [file.rename(file.with_name(self._names[file.name])) for file in files]
            there = self._runner.there(f"v1/incoming/{folder.relative_to(outgoing).as_posix()}/")
            done = self._runner.run(["-tp", *map(str, named), there], timeout_s=BULK_TIMEOUT_S)
            self._runner.insist(done, *PARTIAL_CODES, FILE_ERROR_CODE, NO_FOLDER_CODE)
            receipt = Receipt(False, "no inbox", RETRY_S, complaint(done)) if done.returncode else Receipt(True)
            found |= dict.fromkeys(files, receipt)
            for file in files:
                if receipt.stored or self._names[file.name] in done.stderr:
                    del self._names[file.name]
        return found

    def facts(self) -> ConnectionFacts:
        """See `Transport`."""
        moved = self._runner.bytes
        return ConnectionFacts(
            moved["received"], moved["sent"], contributor=self._client, logins=1, polls_because="by rsync"
        )

    def close(self) -> None:
        """See `Transport`."""
        self._runner.close()


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _stage_segment(path: Path, folder: Path) -> Receipt:
    content = read_segment(path, MAX_SEGMENT_BYTES)
    if isinstance(content, Receipt):
        return content
    folder.mkdir(parents=True, exist_ok=True)
    staged = folder / path.name
    staged.write_bytes(content)
    staged.chmod(0o640)  # the learner may be another member of the group
    return Receipt(True)
