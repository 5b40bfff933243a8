"""`syncd pull`, `push`, `bidirectional`, and `watch`: the mirror and the outbox of this machine, once or for good."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorleg.files import is_full
from anchorleg.output import ReaderGoneError, Waiting, say
from syncd.commands import FolderArgument, RemoteArgument, connect, places
from syncd.errors import ConfigError, RemoteError, StorageError
from syncd.remote import Remote, Settings
from syncd.shared.layout import disk_errors

if TYPE_CHECKING:
    from types import FrameType

    from syncd.laptop.checkpoints import CheckpointSource
    from syncd.laptop.client import Wishes
    from syncd.laptop.exchange import ExchangeCounts
    from syncd.laptop.mirror import Arrival

SecondsArgument = Annotated[
    float, typer.Argument(min=0.0, max=86_400.0, help="Repeat every so many seconds until Ctrl-C. 0: once.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
CheckpointsOption = Annotated[
    bool, typer.Option("--checkpoints", help="Fetch the newest whole checkpoints too. Continues partial files.")
]


def pull(
    remote: RemoteArgument = "",
    folder: FolderArgument = "",
    seconds: SecondsArgument = 0.0,
    checkpoints: CheckpointsOption = False,
    rsync: Annotated[bool, typer.Option("--rsync", help="Use rsync, if syncd may not run on the remote.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch the newest policies and curves."""
    _run("pull", remote, folder, seconds, as_json=as_json, checkpoints=checkpoints, by_rsync=rsync)


def push(
    remote: RemoteArgument = "",
    folder: FolderArgument = "",
    seconds: SecondsArgument = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Send the experience that waits in the outbox."""
    _run("push", remote, folder, seconds, as_json=as_json)


def bidirectional(
    remote: RemoteArgument = "",
    folder: FolderArgument = "",
    seconds: SecondsArgument = 0.0,
    checkpoints: CheckpointsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fetch policies and curves, and send experience."""
    _run("bidirectional", remote, folder, seconds, as_json=as_json, checkpoints=checkpoints)


def watch(
    remote: RemoteArgument = "",
    folder: FolderArgument = "",
) -> None:
    """Stay connected: fetch and send at once. Ctrl-C ends it."""
    _watch(remote, folder, waits=False)


def watch_in_background(remote: str, folder: str) -> None:
    """`watch` that waits where a `pull`, `push` or `bidirectional` keeps the mirror. Errors: SyncError."""
    _watch(remote, folder, waits=True)


def _watch(remote: str, folder: str, *, waits: bool) -> None:
    from syncd.laptop.client import Wishes

    settings, place, mirror = places(remote, folder)
    _stay("watch", settings, place, mirror, Wishes(), waits=waits)


def _run(
    verb: str, remote: str, folder: str, every_s: float, *, as_json: bool, checkpoints: bool = False,
    by_rsync: bool = False,
) -> None:  # fmt: skip
    from syncd.laptop.client import Wishes

    if math.isnan(every_s):
        raise ConfigError("sync.not-a-number")
    wishes = Wishes(pull=verb != "push", push=verb != "pull", every_s=every_s)
    settings, place, mirror = places(remote, folder)
    if checkpoints and place.is_local:
        raise ConfigError("sync.local-checkpoints", remote=place)
    if by_rsync and place.is_local:
        raise ConfigError("sync.rsync-local")
    if every_s:
        if as_json or checkpoints or by_rsync:
            raise ConfigError("sync.endless")
        _stay(verb, settings, place, mirror, wishes, waits=True)
        return
    _once(verb, settings, place, mirror, wishes, as_json=as_json, checkpoints=checkpoints, by_rsync=by_rsync)


def _once(
    verb: str,
    settings: Settings,
    place: Remote,
    mirror: Path,
    wishes: Wishes,
    *,
    as_json: bool,
    checkpoints: bool,
    by_rsync: bool,
) -> None:
    from syncd.laptop import views
    from syncd.laptop.checkpoints import ServedCheckpoints, fetch_newest
    from syncd.laptop.client import sync_once
    from syncd.laptop.status import mirror_lock
    from syncd.outbox import Outbox

    def arrived(arrival: Arrival) -> None:
        if arrival.manifest is not None and not as_json:
            say(views.policy_line(arrival.manifest, arrival.bytes))

    brought: list[str] = []
    source: CheckpointSource
    with _signals(), mirror_lock(mirror, verb), ExitStack() as stack, Waiting(f"connecting to {place}") as wait:
        if by_rsync:
            from syncd.laptop.rsync import RsyncCheckpoints, RsyncPull

            pull, name = RsyncPull(place, mirror, arrived=arrived), "rsync"
            with disk_errors(mirror):
                pull.look()
            counts, source = pull.counts, RsyncCheckpoints(place, mirror)
        else:
            connection = connect(settings, place)
            stack.callback(connection.close)
            name, wait.words = connection.name, "sending and fetching"
            counts = sync_once(connection, mirror, wishes, arrived=lambda arrival, _announced: arrived(arrival))
            source = ServedCheckpoints(connection)
        if checkpoints:
            wait.words = "fetching checkpoints"
            with disk_errors(mirror):
                brought = fetch_newest(source, mirror, trouble=counts.troubles.append)
    waiting = Outbox(mirror).count()
    if as_json:
        print(json.dumps(_report(counts, str(place), mirror, name, waiting, brought), indent=2))
    else:
        moved = views.moved_lines(counts, pull=wishes.pull, push=wishes.push, waiting=waiting, remote=str(place))
        say(*moved, *brought)
    if counts.troubles:
        raise RemoteError("sync.left-out", troubles="; ".join(counts.troubles))


def _report(
    counts: ExchangeCounts, remote: str, mirror: Path, transport: str, waiting: int, brought: list[str]
) -> dict[str, Any]:
    manifests = [arrival.manifest for arrival in counts.policies if arrival.manifest is not None]
    return {
        "remote": remote,
        "folder": str(mirror),
        "transport": transport,
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


def _stay(verb: str, settings: Settings, place: Remote, mirror: Path, wishes: Wishes, *, waits: bool) -> None:
    """Until a signal, or an error that a person must mend. Where another one keeps the mirror, a person's `watch` ends
    with a sentence; what is in the background `waits` for its end: a service manager hears it once.
    """
    from syncd.laptop.status import StatusWriter, mirror_lock

    with _signals() as was_told:
        try:
            with mirror_lock(mirror, verb, wait=_log_line if waits else None):  # first: `status` tells by it
                from syncd.laptop import views
                from syncd.laptop.client import Client
                from syncd.wire.protocol import program_version

                program_version()  # now, while it is that of this code: an upgrade may come before the connection
                _log_line(f"connecting to {place}")
                writer = StatusWriter(mirror, str(place), pull=wishes.pull, push=wishes.push)
                arrived = views.ArrivalLines(_log_line).arrived
                Client(mirror, lambda: connect(settings, place), writer, wishes, say=_log_line, arrived=arrived).watch()
        except KeyboardInterrupt:
            if not was_told():
                raise
            _log_line("told to end (SIGTERM)")


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


def _log_line(sentence: str) -> None:
    """One line of a log, with its time. A full disk costs the line, not the client."""
    try:
        say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}")
    except ReaderGoneError:
        raise
    except OSError as error:
        if is_full(error):
            return
        raise StorageError("storage.unwritable", path="the log", why=error.strerror) from error
