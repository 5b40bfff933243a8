"""What a client says of itself, and what can be seen of a mirror whether a client runs or not.

`DIR/state/status.json` is the client's word, at most one second old while things move and `BEAT_S` otherwise. It is
replaced by rename, without fsync: after a crash of the machine it would be wrong anyway. Whether a client runs is
told by its lock, `DIR/state/lock`, not by this file. It is a flock, because DIR is on this machine's own disk: it goes
away with its process, however that ends. The file is never deleted: a second process could lock one without a name.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, field_validator

from anchorleg.words import on_one_line, printable
from syncd.errors import ConfigError, StorageError
from syncd.outbox import Contributions, Outbox, Played, read_contributions, read_played
from syncd.shared.layout import Shared, read_hint, writing
from syncd.shared.manifest import Score
from syncd.store import newest
from syncd.wire.arrivals import ConnectionFacts

State = Literal["connecting", "syncing", "live", "offline", "stopped"]

#: At most one write a second, so that a busy client does not wear the disk.
WRITE_EVERY_S = 1.0
#: And one this often when nothing happens: the word of a living client is never older (unless it is connecting).
BEAT_S = 5.0
#: Of so many of the last policies the quantiles are taken.
LATENCIES = 200
TROUBLES = 5
#: What others said, or was said of them: also where an older client wrote it down.
_Words = Annotated[str, AfterValidator(printable)]

#: `since` is when the outage, or the connection, began: tries that fail do not begin a new outage.
_PHASES: dict[State, int] = {"offline": 0, "connecting": 0, "syncing": 1, "live": 1, "stopped": 2}


_OF_A_CONNECTION = ("bytes_in", "bytes_out", "logins", "rtt_s", "clock_offset_s", "contributor")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    _texts_have_one_line = field_validator("*")(on_one_line)


class Latency(_Model):
    """Publication → usable here, of policies that were announced while we were connected. Seconds.

    Across two clocks, put right by the offset that was seen when the connection began: good to some 0.1 s. `last` are
    the newest `LATENCIES` of `count`.
    """

    count: int = 0
    last: tuple[float, ...] = ()

    def with_one(self, latency_s: float) -> Latency:
        """These and one more. A negative one (clocks) counts as zero."""
        return Latency(count=self.count + 1, last=(*self.last, max(0.0, latency_s))[-LATENCIES:])

    def quantile(self, share: float) -> float | None:
        """The latency that this share of the last ones did not exceed; None where there are none."""
        ordered = sorted(self.last)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


class ClientStatus(_Model):
    """One client's word. Times are unix seconds; bytes and logins are of its last connection.

    `since`: the outage, or the connection, has lasted so long. `error`: of the last try; "" once it is live.
    """

    pid: int
    started_at: float
    written_at: float
    state: State
    since: float
    remote: str
    transport: str = ""
    pull: bool = True
    push: bool = True
    contributor: str | None = None
    error: _Words = ""
    next_try_at: float | None = None
    rtt_s: float | None = None
    clock_offset_s: float | None = None
    bytes_in: int = 0
    bytes_out: int = 0
    logins: int = 0
    policies: int = 0
    latency: Latency = Latency()
    troubles: tuple[_Words, ...] = ()


class StatusWriter:
    """The client's status as it changes; writes it down at a bounded rate. `folder` is DIR."""

    def __init__(
        self, folder: Path, remote: str, *, pull: bool, push: bool, clock: Callable[[], float] = time.time
    ) -> None:
        now = clock()
        self._path = status_file(folder)
        self._clock = clock
        self._written = 0.0
        self._changed = True
        self.status = ClientStatus(
            pid=os.getpid(), started_at=now, written_at=now, state="connecting", since=now, remote=remote, pull=pull,
            push=push,
        )  # fmt: skip

    def tell(self, state: State | None = None, **changes: Any) -> None:
        """Note changes; a change of state is written at once."""
        now = self._clock()
        if state is not None and state != self.status.state:
            changes |= {"state": state}
            if _PHASES[state] != _PHASES[self.status.state]:
                changes |= {"since": now}
        fresh = {name: value for name, value in changes.items() if getattr(self.status, name) != value}
        if fresh:
            self.status = self.status.model_copy(update=fresh)
            self._changed = True
        self.write(now=now, at_once="state" in fresh)

    def trouble(self, sentence: str) -> None:
        """Note a sentence that the user should see, with the time of day when it was last so: it may be over."""
        others = (each for each in self.status.troubles if not each.endswith(f" {sentence}"))
        dated = f"{time.strftime('%H:%M:%S', time.localtime(self._clock()))} {sentence}"
        self.tell(troubles=(*others, dated)[-TROUBLES:])
        self.write(at_once=True)

    def facts(self, facts: ConnectionFacts) -> None:
        """What the transport says of itself now."""
        self.tell(**{name: getattr(facts, name) for name in _OF_A_CONNECTION})

    def write(self, *, now: float | None = None, at_once: bool = False) -> None:
        """Write it down if it is due. A disk that is full costs the word, not the client."""
        now = self._clock() if now is None else now
        age_s = now - self._written
        is_due = age_s >= BEAT_S or age_s < 0 or (self._changed and age_s >= WRITE_EVERY_S)
        if not (is_due or at_once):
            return
        self._written, self._changed = now, False
        self.status = self.status.model_copy(update={"written_at": now})
        temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary.write_text(self.status.model_dump_json() + "\n", encoding="utf-8")
            os.replace(temporary, self._path)


def status_file(folder: Path) -> Path:
    """Where the client of the mirror `folder` writes its word."""
    return folder / "state" / "status.json"


def read_status(folder: Path) -> ClientStatus | None:
    """The last client's word; None where there is none, or none that can be read."""
    return read_hint(ClientStatus, status_file(folder))


class PolicyView(_Model):
    """The newest policy of one slot that is here. `played` is the last actor's verdict on it."""

    run_id: str
    run_name: str
    slot: int
    version: str
    step: int
    created_at: float
    bytes: int
    score: Score | None = None
    played: Played | None = None


class MirrorView(_Model):
    """All that there is to see of a mirror. `client`: the last word of a client; `runs`: whether one runs now."""

    folder: str
    looked_at: float
    runs: bool
    pid: int | None = None
    verb: str = ""
    client: ClientStatus | None = None
    slots: tuple[PolicyView, ...] = ()
    waiting: int = 0
    waiting_bytes: int = 0
    contributions: Contributions = Contributions()

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it: without the lists that only the next count needs."""
        value = self.model_dump(mode="json", exclude={"contributions": {"unjudged"}, "client": {"latency": {"last"}}})
        if self.client is not None:
            latency = self.client.latency
            value["client"]["latency"] |= {"p50_s": latency.quantile(0.5), "p95_s": latency.quantile(0.95)}
        return value


def read_mirror(folder: Path, now: float) -> MirrorView:
    """See what lies in the mirror `folder`, and who keeps it. Errors: OSError where it cannot be read."""
    keeper = holder(folder)
    waiting, waiting_bytes = Outbox(folder).usage()
    return MirrorView(
        folder=str(folder),
        looked_at=now,
        runs=keeper is not None,
        pid=keeper.pid if keeper else None,
        verb=keeper.verb if keeper else "",
        client=read_status(folder),
        slots=tuple(_slots(folder)),
        waiting=waiting,
        waiting_bytes=waiting_bytes,
        contributions=read_contributions(folder),
    )


def _slots(folder: Path) -> list[PolicyView]:
    played = read_played(folder)
    found = []
    for place in Shared(folder).slots():
        manifest = newest(place)
        if manifest is None:
            continue
        verdict = played.get(f"{place.run_id}/{place.slot}")
        found.append(
            PolicyView(
                run_id=place.run_id,
                run_name=manifest.run_name,
                slot=place.slot,
                version=str(manifest.version),
                step=manifest.step,
                created_at=manifest.created_at,
                bytes=manifest.blob.bytes,
                score=manifest.score,
                played=verdict if verdict is not None and verdict.version == str(manifest.version) else None,
            )
        )
    return found


#: `syncd status` asks for the lock, for an instant; a client that meets it asks again for so long.
PATIENCE_S = 1.0
_LOOK_S = 0.02


class Holder(BaseModel):
    """Who keeps the mirror: process id, since when (unix seconds), and which verb."""

    model_config = ConfigDict(frozen=True)

    pid: int
    since: float
    verb: str


@contextmanager
def mirror_lock(
    folder: Path, verb: str, *, wait: Callable[[str], None] | None = None, patience_s: float = PATIENCE_S
) -> Iterator[None]:
    """Keep the mirror while the block lasts. Errors: ConfigError that names the other one; StorageError.

    With `wait` it comes for as long as the other one stays: `wait` is told so, once, and there is no error. But no
    `watch` waits for another `watch`: nothing would be left to do.
    """
    path = _lock_file(folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageError("mirror.unusable", path=folder, why=error.strerror) from error
    try:
        with writing(path):
            _take(fd, folder, verb, wait, patience_s)
            os.ftruncate(fd, 0)
        with suppress(OSError):  # on a full disk nobody knows who it is
            os.pwrite(fd, Holder(pid=os.getpid(), since=time.time(), verb=verb).model_dump_json().encode(), 0)
        yield
    finally:
        os.close(fd)


def _take(fd: int, folder: Path, verb: str, wait: Callable[[str], None] | None, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                break
            time.sleep(_LOOK_S)
        else:
            return
    who = _read(folder)
    name = _named(who)
    if wait is None or (who is not None and verb == who.verb == "watch"):
        only_fetches = verb == "push" and who is not None and who.verb == "pull"
        raise ConfigError("mirror.only-fetched" if only_fetches else "mirror.taken", folder=folder, by=name)
    wait(f"{folder} is already updated by {name}: waiting until it ends")
    fcntl.flock(fd, fcntl.LOCK_EX)  # asleep in the kernel; a signal's exception ends it


def _named(who: Holder | None) -> str:
    return f"`syncd {who.verb}` (pid {who.pid})" if who else "another syncd"


def holder(folder: Path) -> Holder | None:
    """Who keeps this mirror now; None where nobody does."""
    try:
        fd = os.open(_lock_file(folder), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read(folder) or Holder(pid=0, since=0.0, verb="watch")
    except OSError:
        return None
    finally:
        os.close(fd)
    return None


def _lock_file(folder: Path) -> Path:
    return folder / "state" / "lock"


def _read(folder: Path) -> Holder | None:
    return read_hint(Holder, _lock_file(folder))
