"""`syncd pull`, `push`, `bidirectional`, and `watch`: the mirror and the outbox of this machine, once or for good."""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from anchorleg.files import is_full
from anchorleg.output import ReaderGoneError
from syncd.access.settings import Settings
from syncd.commands.way import LimitOption, TransportOption, Way, connect, places
from syncd.errors import ConfigError, HostKeyError, LoginRefusedError, RemoteError, StorageError, SyncError
from syncd.remote import Remote
from syncd.shared.disk import disk_errors

if TYPE_CHECKING:
    from types import FrameType

    from syncd.laptop.checkpoints import CheckpointSource
    from syncd.laptop.client import Wishes
    from syncd.laptop.exchange import ExchangeCounts
    from syncd.laptop.mirror import Arrival
    from syncd.laptop.status import StatusWriter

RemoteArgument = Annotated[
    str, typer.Argument(metavar="REMOTE", help='[user@]host:path or a folder; left out or "": what `setup` stored.')
]
FolderArgument = Annotated[
    str, typer.Argument(metavar="DIR", help='The mirror on this machine; left out or "": as `setup` stored.')
]
SecondsArgument = Annotated[
    float,
    typer.Argument(
        metavar="SECONDS", min=0.0, max=86_400.0, help="Go on for ever, with so many seconds between looks; 0: once."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable report at the end.")]
CheckpointsOption = Annotated[
    bool,
    typer.Option("--checkpoints", help="Also the newest whole checkpoints: large, goes on where it broke."),
]

#: Six tries an hour of what a person must mend: below what sites ban for.
HOLD_BACK_S = 600.0
#: A transport's name and why it was chosen, in a report.
BY_RSYNC = ("rsync", "--rsync asks for it")
#: A terminal's picture is drawn this often.
_REDRAW_S = 1.0


def pull(
    remote: RemoteArgument = "",
    folder: FolderArgument = "",
    seconds: SecondsArgument = 0.0,
    transport: TransportOption = None,
    bwlimit: LimitOption = None,
    checkpoints: CheckpointsOption = False,
    rsync: Annotated[bool, typer.Option("--rsync", help="By `rsync`, where no syncd may run over there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch the newest policies and curves into DIR."""
    way = Way(transport, bwlimit, by_rsync=rsync)
    _run("pull", remote, folder, seconds, way, as_json=as_json, checkpoints=checkpoints)


def push(
    remote: RemoteArgument = "",
    folder: FolderArgument = "",
    seconds: SecondsArgument = 0.0,
    transport: TransportOption = None,
    bwlimit: LimitOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send the experience that waits in DIR's outbox."""
    _run("push", remote, folder, seconds, Way(transport, bwlimit), as_json=as_json)


def bidirectional(
    remote: RemoteArgument = "",
    folder: FolderArgument = "",
    seconds: SecondsArgument = 0.0,
    transport: TransportOption = None,
    bwlimit: LimitOption = None,
    checkpoints: CheckpointsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch policies and curves, and send experience."""
    way = Way(transport, bwlimit)
    _run("bidirectional", remote, folder, seconds, way, as_json=as_json, checkpoints=checkpoints)


def watch(
    remote: RemoteArgument = "",
    folder: FolderArgument = "",
    transport: TransportOption = None,
    bwlimit: LimitOption = None,
    pull_only: Annotated[bool, typer.Option("--pull-only", help="Fetch, and send nothing.")] = False,
    push_only: Annotated[bool, typer.Option("--push-only", help="Send, and fetch nothing.")] = False,
) -> None:
    """Stay connected: policies arrive as they are published, experience leaves as it is made. Ctrl-C ends it."""
    if pull_only and push_only:
        raise ConfigError("sync.nothing-to-do")
    from syncd.laptop.client import Wishes

    settings, place, mirror = places(remote, folder)
    wishes = Wishes(pull=not push_only, push=not pull_only)
    _stay("watch", settings, place, mirror, wishes, Way(transport, bwlimit), waits=False)


def watch_in_background(remote: str, folder: str) -> None:
    """`watch` that waits where a `pull`, `push` or `bidirectional` keeps the mirror. Errors: SyncError."""
    from syncd.laptop.client import Wishes

    settings, place, mirror = places(remote, folder)
    _stay("watch", settings, place, mirror, Wishes(), Way(), waits=True)


def _run(
    verb: str, remote: str, folder: str, every_s: float, way: Way, *, as_json: bool, checkpoints: bool = False
) -> None:
    from syncd.laptop.client import Wishes

    if math.isnan(every_s):
        raise ConfigError("sync.not-a-number")
    wishes = Wishes(pull=verb != "push", push=verb != "pull", every_s=every_s)
    settings, place, mirror = places(remote, folder)
    if checkpoints and place.is_local:
        raise ConfigError("sync.local-checkpoints", remote=place)
    if way.by_rsync and (place.is_local or way.transport is not None):
        raise ConfigError("sync.rsync-local")
    if every_s:
        if as_json or checkpoints:
            raise ConfigError("sync.endless")
        try:
            _stay(verb, settings, place, mirror, wishes, way, waits=True)
        except (ConfigError, HostKeyError, LoginRefusedError, RemoteError) as error:
            _hold_back(error)
            raise
        return
    _once(verb, settings, place, mirror, wishes, way, as_json=as_json, checkpoints=checkpoints)


def _hold_back(error: SyncError) -> None:
    """Say what a person must mend, and wait before we end with it, where nobody is at a terminal: a service manager
    that keeps us alive would try a refused key every ten seconds, and sites ban for less. SIGTERM ends the wait.
    """
    if sys.stdout.isatty():
        return
    with suppress(KeyboardInterrupt), _signals():
        _log_line(f"{error} (ending in {HOLD_BACK_S / 60:.0f} minutes, as something may start this again at once)")
        time.sleep(HOLD_BACK_S)


def _once(
    verb: str,
    settings: Settings,
    place: Remote,
    mirror: Path,
    wishes: Wishes,
    way: Way,
    *,
    as_json: bool,
    checkpoints: bool,
) -> None:
    from syncd.laptop import views
    from syncd.laptop.checkpoints import ServedCheckpoints, fetch_newest
    from syncd.laptop.client import sync_once
    from syncd.laptop.lock import mirror_lock
    from syncd.outbox import Outbox

    def arrived(arrival: Arrival) -> None:
        if arrival.manifest is not None and not as_json:
            print(views.policy_line(arrival.manifest, arrival.bytes))

    brought: list[str] = []
    source: CheckpointSource
    with _signals(), mirror_lock(mirror, verb), ExitStack() as stack:
        if way.by_rsync:
            from syncd.laptop.rsync import RsyncCheckpoints, RsyncPull

            pull, chosen = RsyncPull(place, mirror, way.over(settings).bwlimit, arrived=arrived), BY_RSYNC
            with _spinner("fetching …", quiet=as_json), disk_errors(mirror):
                pull.all()
            counts, source = pull.counts, RsyncCheckpoints(place, mirror, way.over(settings).bwlimit)
        else:
            with _spinner(f"connecting to {place} …", quiet=as_json):
                connection = connect(settings, place, way)
            stack.callback(connection.close)
            chosen = (connection.name, connection.chosen_because)
            with _spinner("fetching …", quiet=as_json):
                counts = sync_once(connection, mirror, wishes, arrived=lambda arrival, _announced: arrived(arrival))
            source = ServedCheckpoints(connection)
        if checkpoints:
            with _spinner("fetching checkpoints …", quiet=as_json), disk_errors(mirror):
                brought = fetch_newest(source, mirror, counts.runs, trouble=counts.troubles.append)
    waiting = Outbox(mirror).count()
    if as_json:
        print(json.dumps(_report(counts, str(place), mirror, chosen, waiting, brought), indent=2))
    else:
        for line in views.moved_lines(counts, pull=wishes.pull, push=wishes.push, waiting=waiting, remote=str(place)):
            print(line)
        for line in brought:
            print(line)
    if counts.troubles:
        raise RemoteError("sync.left-out", troubles="; ".join(counts.troubles))


def _report(
    counts: ExchangeCounts, remote: str, mirror: Path, chosen: tuple[str, str], waiting: int, brought: list[str]
) -> dict[str, Any]:
    manifests = [arrival.manifest for arrival in counts.policies if arrival.manifest is not None]
    return {
        "remote": remote,
        "folder": str(mirror),
        "transport": chosen[0],
        "chosen_because": chosen[1],
        "policies": [
            {
                "run_id": each.run_id,
                "slot": each.slot,
                "version": str(each.version),
                "step": each.step,
                "score": each.score.model_dump() if each.score is not None else None,
            }
            for each in manifests
        ],
        "checkpoints": brought,
        "offered": counts.offered,
        "curves": counts.curves,
        "bytes": counts.bytes,
        "sent": counts.sent,
        "waiting": waiting,
        "accepted": counts.accepted,
        "refused": counts.refused,
        "troubles": counts.troubles,
    }


def _stay(verb: str, settings: Settings, place: Remote, mirror: Path, wishes: Wishes, way: Way, *, waits: bool) -> None:
    """Until a signal, or an error that a person must mend. Where another one keeps the mirror, a person's `watch` ends
    with a sentence; what is in the background `waits` for its end: a service manager hears it once.
    """
    from syncd.laptop import views
    from syncd.laptop.client import LISTEN_S, Client
    from syncd.laptop.lock import mirror_lock
    from syncd.laptop.status import StatusWriter
    from syncd.shared import codec  # noqa: F401 - numpy now: the first policy need not wait for it
    from syncd.wire.protocol import program_version

    program_version()  # now, while it is that of this code: an upgrade may come before the first connection
    on_terminal = sys.stdout.isatty()
    say = _quiet if on_terminal else _log_line
    wait = (print if on_terminal else _log_line) if waits else None
    with _signals() as was_told:
        try:
            with _held(lambda: mirror_lock(mirror, verb, wait=wait), say):
                if way.by_rsync:
                    _pull_by_rsync(place, mirror, way.over(settings).bwlimit, wishes.every_s)
                writer = StatusWriter(mirror, str(place), pull=wishes.pull, push=wishes.push)
                lines = views.ArrivalLines(say)
                with _picture(mirror, writer) if on_terminal else _no_picture() as redraw:
                    Client(
                        mirror,
                        lambda: connect(settings, place, way),
                        writer,
                        wishes,
                        say=say,
                        arrived=lines.arrived,
                        tick=redraw,
                        listen_s=_REDRAW_S if on_terminal else LISTEN_S,
                    ).watch()
        except KeyboardInterrupt:
            if on_terminal:
                print(f"ended; what has arrived stays in {mirror}, what waits is sent by the next one")
            if not was_told():
                raise
            say("told to end (SIGTERM)")


def _pull_by_rsync(place: Remote, mirror: Path, bwlimit: int, every_s: float) -> NoReturn:
    from syncd.laptop import views
    from syncd.laptop.rsync import RsyncPull, pull_for_good

    lines = views.ArrivalLines(_log_line)
    pull = RsyncPull(place, mirror, bwlimit, arrived=lambda arrival: lines.arrived(arrival, None))
    pull_for_good(pull, every_s, _log_line)


@contextmanager
def _held(lock: Callable[[], AbstractContextManager[None]], say: Callable[[str], None]) -> Iterator[None]:
    """The lock of the mirror, which a full disk delays. Errors: those of the lock, but for a full disk."""
    from syncd.laptop.backoff import DISK_RETRY_S

    said = ""
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(lock())
                break
            except StorageError as error:
                if not is_full(error.__cause__):
                    raise
                if said != (said := str(error)):
                    say(f"{error}; trying again every {DISK_RETRY_S:.0f} s")
                time.sleep(DISK_RETRY_S)
        yield


@contextmanager
def _signals() -> Iterator[Callable[[], bool]]:
    """SIGTERM ends us as Ctrl-C does, wherever we stand; yields whether it was SIGTERM."""
    told: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of handlers
        told.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield lambda: bool(told)
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _spinner(words: str, *, quiet: bool) -> Iterator[None]:
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True, emoji=False).status(words):
        yield


@contextmanager
def _picture(mirror: Path, writer: StatusWriter) -> Iterator[Callable[[], None]]:
    """A live table on the terminal; yields what redraws it. The writer is at hand: on a full disk its file is old."""
    from rich.console import Console
    from rich.live import Live

    from syncd.laptop import views
    from syncd.laptop.status import read_mirror

    console = Console(emoji=False)
    drawn_at = 0.0

    def redraw() -> None:
        nonlocal drawn_at
        if time.monotonic() - drawn_at >= _REDRAW_S:
            drawn_at = time.monotonic()
            try:
                view = read_mirror(mirror, time.time()).model_copy(update={"client": writer.status})
            except OSError:  # the client itself says what is wrong with the disk
                return
            live.update(views.status_table(view, console.width), refresh=True)

    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield redraw


@contextmanager
def _no_picture() -> Iterator[Callable[[], None]]:
    yield lambda: None


def _quiet(sentence: str) -> None:
    """On a terminal the picture says it all."""


def _log_line(sentence: str) -> None:
    """One line of a log, with its time. A full disk costs the line, not the client."""
    try:
        print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}", flush=True)
    except ReaderGoneError:
        raise
    except OSError as error:
        if is_full(error):
            return
        raise StorageError("storage.unwritable", path="the log", why=error.strerror) from error
