"""`syncd status`, `doctor`, `install`, `uninstall`, `agent-status`; and `run-agent`, which a service manager starts."""

from __future__ import annotations

import errno
import json
import os
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from anchorleg.output import Waiting, say
from syncd import background
from syncd.commands import FolderArgument, JsonOption, RemoteArgument, default_name, places
from syncd.errors import (
    ConfigError,
    HostKeyError,
    LoginRefusedError,
    ProblemsFoundError,
    RemoteError,
    ServiceError,
    StorageError,
)
from syncd.remote import Settings, load_settings, parse_remote
from syncd.shared.layout import make_own_folder

#: What a person must mend first: another start would end the same way.
FOR_A_PERSON = (ConfigError, HostKeyError, LoginRefusedError, RemoteError)
#: So is this of a disk. A network folder that is away says other things, and may be back at the next start.
_REFUSED_BY_THE_DISK = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
#: How long `install` waits for the manager to say that it runs.
FIRST_WORD_TIMEOUT_S, _LOOK_S = 5.0, 0.1
#: A LaunchAgent's log has a line a minute and slot; a longer one begins anew at the next start.
MAX_LOG_BYTES = 16 * 2**20


def install(remote: RemoteArgument = "", folder: FolderArgument = "") -> None:
    """Keep `syncd watch` running in the background.

    Starts now and after each login.
    """
    _, place, mirror = places(remote, folder)
    agent = background.Agent(
        python=sys.executable,
        remote=str(place) if remote and place.is_local else remote,
        folder=mirror,
        log=background.log_file(),
        environment={name: os.environ[name] for name in background.KEPT_ENVIRONMENT if os.environ.get(name)},
    )
    make_own_folder(mirror)
    manager = background.manager()
    try:
        manager.install(agent)
    except ServiceError as error:
        by_hand = shlex.join(["syncd", "watch", *([agent.remote, str(mirror)] if remote or folder else [])])
        raise ServiceError("service.not-installed", why=error, command=by_hand) from None
    deadline = time.monotonic() + FIRST_WORD_TIMEOUT_S
    while not (state := manager.state()).running and time.monotonic() < deadline:
        time.sleep(_LOOK_S)
    if not state.running:
        raise ServiceError("service.not-running", manager=state.manager, detail=state.detail, log=state.log)
    say(f"syncd runs in the background: {place} → {mirror}")
    say(f"  {state.file} ({state.manager}: {state.detail}); log: {state.log}")
    print("  check: syncd status · end: syncd uninstall")


def uninstall() -> None:
    """Stop the background `syncd` and remove its service. Mirror and outbox stay."""
    was_there = background.manager().uninstall()
    print("syncd no longer runs in the background" if was_there else "syncd was not installed; nothing to do")


def agent_status(as_json: JsonOption = False) -> None:
    """Show whether `syncd` runs in the background. `syncd status` shows its connection."""
    state = background.manager().state()
    if as_json:
        print(json.dumps({**asdict(state), "file": str(state.file)}, indent=2))
    elif not state.installed:
        say("syncd is not installed in the background: use `syncd install [REMOTE] [DIR]`")
    else:
        print(f"syncd {f'runs (pid {state.pid})' if state.running else 'is not running'}")
        print(f"{state.manager}: {state.detail} · {state.file}\nlog: {state.log}")


def run_agent(
    remote: Annotated[str, typer.Argument(help="As for `watch`.")],
    folder: Annotated[Path, typer.Argument(help="As for `watch`.")],
) -> None:
    """Run `watch` for the service manager.

    Ends with 0 if another start would not help; the reason is in its log and in `syncd status`.
    """
    from syncd.commands.sync import watch_in_background

    log = background.log_file()
    if sys.platform == "darwin" and log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        os.truncate(log, 0)
    try:
        watch_in_background(remote, str(folder))
    except (*FOR_A_PERSON, StorageError) as error:
        cause = error.__cause__
        is_refused = isinstance(cause, OSError) and cause.errno in _REFUSED_BY_THE_DISK
        if isinstance(error, StorageError) and not is_refused:
            raise
        print(f"syncd: {error}; it stays off until `syncd install` or the next login", file=sys.stderr)


def status(
    folder: FolderArgument = "",
    as_json: JsonOption = False,
) -> None:
    """Show the mirror and the connection."""
    from syncd.laptop.status import read_mirror
    from syncd.laptop.views import status_lines

    mirror = (Settings() if folder else load_settings()).mirror_at(folder)
    if not mirror.is_dir():
        raise ConfigError("mirror.not-one", path=mirror)
    try:
        view = read_mirror(mirror, time.time())
    except OSError as error:
        raise StorageError("storage.unreadable", path=error.filename or mirror, why=error.strerror) from error
    if as_json:
        print(json.dumps(view.to_json(), indent=2), flush=True)
    else:
        say(*status_lines(view))


def doctor(remote: RemoteArgument = "", folder: FolderArgument = "", as_json: JsonOption = False) -> None:
    """Check host key, login, clock, inbox and disk.

    Changes nothing. Each finding says what to do; the exit code is 11 if one is a problem.
    """
    from rich.console import Console

    from anchorleg.findings import as_objects, examine, problems_of, show_findings, total
    from syncd.doctor import CHECKS, gather

    settings = load_settings()
    place = parse_remote(remote, settings=settings)
    with Waiting(f"checking {place}"):
        facts = gather(place, settings.mirror_at(folder), settings, settings.name or default_name())
        findings = examine(CHECKS, facts)
    if as_json:
        print(json.dumps({"findings": as_objects(findings), "facts": facts.model_dump(mode="json")}, indent=2))
    else:
        show_findings(findings, screen := Console(emoji=False, highlight=False))
        print(f"{chr(10) if screen.is_terminal else ''}{total(findings)}.", flush=True)
    if bad := problems_of(findings):
        raise ProblemsFoundError("doctor.problems", count=len(bad), checks=", ".join(bad))
