"""`syncd install`, `uninstall` and `agent-status`; and `run-agent`, which the service manager starts."""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anchorleg.words import counted, roughly
from syncd.access.settings import load_settings, parse_remote
from syncd.background import crashes, service
from syncd.background.crashes import Record
from syncd.background.service import Manager, ServiceState
from syncd.commands.way import FolderArgument, JsonOption, RemoteArgument
from syncd.errors import (
    ConfigError,
    HostKeyError,
    LoginRefusedError,
    RemoteError,
    SecondFactorError,
    ServiceError,
    StorageError,
    SyncError,
)
from syncd.shared.disk import make_own_folder

if TYPE_CHECKING:
    from syncd.laptop.status import ClientStatus

#: What a person must mend first: another start would end the same way.
FOR_A_PERSON = (ConfigError, HostKeyError, LoginRefusedError, RemoteError)
#: So is this of a disk. A network folder that is away says other things, and may be back at the next start.
_REFUSED_BY_THE_DISK = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
#: A new agent is connected, or has said why not, within seconds; an ssh that asks a dead host takes longer, and
#: then goes on in the background.
FIRST_WORD_TIMEOUT_S = 15.0
#: Where ssh finds its agent. A shell's agent ends with the login, so `install` takes no such address along.
_AGENT = "SSH_AUTH_SOCK"
_NO_AGENT = (
    "; the background sees no ssh-agent that a shell started: where the key has a passphrase, use one without "
    "(`syncd setup --key NEW_FILE` makes it)"
)
_LOOK_S = 0.1


def install(remote: RemoteArgument = "", folder: FolderArgument = None) -> None:
    """Keep `syncd watch` running in the background, from now on and after each login."""
    settings = load_settings()
    place = parse_remote(remote, settings=settings)
    mirror = settings.mirror_at(folder)
    agent = service.Agent(
        python=sys.executable,
        remote=str(place) if remote and place.is_local else remote,
        folder=mirror,
        log=service.log_file(),
        environment={name: os.environ[name] for name in service.KEPT_ENVIRONMENT if os.environ.get(name)},
    )
    make_own_folder(mirror)
    manager = service.manager()
    record = crashes.record_file()
    try:
        crashes.write_record(record, crashes.Record(remote=agent.remote, folder=str(mirror)))
        hints = manager.install(agent)
    except ServiceError as error:
        words = [agent.remote, str(mirror)] if remote or folder else []
        by_hand = shlex.join(["syncd", "watch", *words])
        raise ServiceError("service.not-installed", why=error, command=by_hand) from None
    state, said, client = _first_word(manager, record, mirror)
    if said.stopped:
        raise ServiceError("service.stopped", why=said.stopped)
    if client is None and not state.running:
        _print_notes(hints)
        raise ServiceError("service.not-running", manager=state.manager, detail=state.detail, log=_log_words(state))
    print(f"syncd runs in the background: {place} → {mirror}")
    if client is None:
        print("  it has not said yet whether it is connected: see `syncd status`")
    elif client.state == "offline":
        print(f"  no connection yet, it goes on trying: {client.error}")
    print(f"  {state.file} ({state.manager}: {state.detail})")
    print(f"  log: {_log_words(state)}")
    _print_notes(hints)
    print("  see it: syncd status · end it: syncd uninstall")


def _print_notes(hints: list[str]) -> None:
    for hint in hints:
        print(f"  note: {hint}")


def uninstall() -> None:
    """End the background `syncd` and delete its service file. Mirror and outbox stay."""
    was_there = service.manager().uninstall()
    folder = crashes.read_record(crashes.record_file()).folder
    crashes.record_file().unlink(missing_ok=True)
    if was_there:
        print("syncd no longer runs in the background" + (f"; what it mirrored stays in {folder}" if folder else ""))
    else:
        print("syncd was not installed in the background; nothing to do")


def agent_status(as_json: JsonOption = False) -> None:
    """Whether the background `syncd` is installed and running, and why not."""
    record = crashes.read_record(crashes.record_file())
    state = service.manager().state()
    if as_json:
        value: dict[str, Any] = {**asdict(state), "file": str(state.file), "agent": record.model_dump()}
        print(json.dumps(value, indent=2))
        return
    for line in status_lines(state, record, time.time()):
        print(line)


def status_lines(state: ServiceState, record: Record, now: float) -> list[str]:
    """What `agent-status` tells a person."""
    if not state.installed:
        return ["syncd is not installed in the background; `syncd install [REMOTE] [DIR]` does it"]
    where = f"{record.remote or 'the remote that `setup` stored'} → {record.folder}" if record.folder else ""
    if state.running:
        lines = [f"syncd runs in the background{f' (pid {state.pid})' if state.pid else ''}", where]
        failed = len(record.started) - 1
        if failed > 0:
            lines.append(f"it crashed {counted(failed, 'time')} of late; see the log")
    elif record.stopped:
        ago = roughly(now - (record.stopped_at or now))
        lines = [f"syncd has stopped ({ago} ago): {record.stopped}", where]
        lines.append("mend that, then start it again: syncd install")
    else:
        lines = ["syncd is installed, and not running now", where, "start it again: syncd install"]
    return [*filter(None, lines), f"{state.manager}: {state.detail} · {state.file}", f"log: {_log_words(state)}"]


def run_agent(remote: Annotated[str, typer.Argument()], folder: Annotated[Path, typer.Argument()]) -> None:
    """What the service manager runs: a `watch` that counts its own crashes and stops where a person is needed.

    It ends with 0 where starting it again would be of no use: that is what both managers take for "done".
    """
    from syncd.commands.sync import watch_in_background

    if crashes.is_log(sys.stdout.fileno()):
        crashes.keep_short(sys.stdout.fileno(), service.log_file())
    path = crashes.record_file()
    before = crashes.read_record(path).model_copy(update={"remote": remote, "folder": str(folder)})
    begun = crashes.begin(before, time.time())
    _note(path, begun)
    if begun.stopped:
        print(f"syncd: {begun.stopped}; it stays off until `syncd install` or the next login", file=sys.stderr)
        return
    try:
        watch_in_background(remote, str(folder))
    except SyncError as error:
        if not _is_for_a_person(error):
            raise
        is_refused = isinstance(error, LoginRefusedError) and not isinstance(error, SecondFactorError)
        why = f"{error}{_NO_AGENT if is_refused and not os.environ.get(_AGENT) else ''}"
        _note(path, crashes.end(begun, time.time(), because=why))
        print(f"syncd: {why}", file=sys.stderr)
        return
    _note(path, crashes.end(begun, time.time()))


def _is_for_a_person(error: SyncError) -> bool:
    cause = error.__cause__
    is_refused = isinstance(cause, OSError) and cause.errno in _REFUSED_BY_THE_DISK
    return isinstance(error, FOR_A_PERSON) or (isinstance(error, StorageError) and is_refused)


def _note(path: Path, record: Record) -> None:
    """Write the record, as far as the disk lets us: a full one is waited for by `watch`."""
    with suppress(StorageError):
        crashes.write_record(path, record)


def _first_word(manager: Manager, record: Path, mirror: Path) -> tuple[ServiceState, Record, ClientStatus | None]:
    """Where a new agent stands once it is connected or knows why not, or has stopped, or the time is over (None)."""
    from syncd.laptop.status import read_status

    deadline = time.monotonic() + FIRST_WORD_TIMEOUT_S
    while True:
        state, said, client = manager.state(), crashes.read_record(record), read_status(mirror)
        if client is not None and (client.pid != state.pid or not _has_settled(client)):
            client = None  # its predecessor's word, or none yet
        if said.stopped or client is not None or time.monotonic() > deadline:
            return state, said, client
        time.sleep(_LOOK_S)


def _has_settled(client: ClientStatus) -> bool:
    """Connected, or without a connection and about to try again; without a next try it is about to stop."""
    return client.state in {"syncing", "live"} or (client.state == "offline" and client.next_try_at is not None)


def _log_words(state: ServiceState) -> str:

    return str(service.log_file()) if state.manager == "launchd" else f"journalctl --user -u {service.UNIT}"
