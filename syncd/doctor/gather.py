"""Collects the facts: files of this machine, the host key, one connection, one line for the other side's shell.

At most two logins, and the second only where the first was let in: refused keys are counted at many sites.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from anchorleg.places import short_path
from syncd.access import keys, survey
from syncd.access.settings import Settings, settings_file
from syncd.background import service
from syncd.doctor.facts import ClientFacts, Error, HostKeyFacts, LaptopFacts, ServiceFacts, Side, Space, Visit
from syncd.errors import HostKeyError, LoginRefusedError, SecondFactorError, ServiceError, SyncError
from syncd.laptop.lock import holder
from syncd.laptop.status import read_status
from syncd.remote import Remote
from syncd.transports.factory import choose_transport, open_transport
from syncd.wire.protocol import REFUSED_PREFIX

#: `quota`: a local program that may ask a file server.
LOCAL_TIMEOUT_S = 20.0
#: A block of `quota` and `df -k`.
_BLOCK = 1024
_RESTRICTED = "our key is restricted to the weights and its own inbox"
#: How many blocks, as an honest program writes it: `int` takes other digits too, and refuses thousands of them.
_BLOCKS = "[0-9]{1,18}"


def gather(remote: Remote, folder: Path, settings: Settings, name: str) -> LaptopFacts:
    """Look at everything between this machine and `remote`. `name`: how this machine calls itself. Errors: none."""
    chosen = choose_transport(remote, settings.transport)
    host_key = _host_key(remote) if not remote.is_local else HostKeyFacts(state="unasked")
    is_safe = host_key.state not in {"unknown", "changed"}
    visit = _visit(remote, settings, name) if is_safe else None
    there, there_error = None, ""
    if visit is not None and not remote.is_local and (visit.error is None or visit.error.kind == "RemoteError"):
        there, there_error = _there(remote)
    return LaptopFacts(
        settings_file=short_path(settings_file()),
        stored=settings.remote is not None and remote.host == settings.remote.host,
        remote=str(remote),
        is_local=remote.is_local,
        folder=short_path(folder),
        host_key=host_key,
        chosen=chosen,
        wanted=settings.transport,
        why_not=dict(_why_not(remote, chosen)),
        visit=visit,
        here=Side(space=_space_here(folder), filesystem=filesystem_of(folder)),
        there=there,
        there_error=there_error,
        open_paths=tuple(_open_paths(folder)),
        service=_service(),
        client=_client(folder),
    )


def _host_key(remote: Remote) -> HostKeyFacts:
    try:
        place = keys.endpoint(remote)
        known = keys.known_keys(place)
        if place.jump:
            shown = known[0].fingerprint if known else ""
            return HostKeyFacts(state="hidden", fingerprint=shown, sentence=f"reached through {place.jump}")
        key = keys.offered_key(place, known)
    except HostKeyError as error:
        return HostKeyFacts(state="changed", sentence=str(error))
    except SyncError as error:
        return HostKeyFacts(state="unasked", sentence=str(error))
    return HostKeyFacts(state="known" if key in known else "unknown", fingerprint=key.fingerprint)


def _visit(remote: Remote, settings: Settings, name: str) -> Visit:
    chosen = choose_transport(remote, settings.transport)
    try:
        transport = open_transport(remote, settings.transport, client=name)
        try:
            offers = transport.listing().offers
            facts = transport.facts()
        finally:
            transport.close()
    except SyncError as error:
        return Visit(transport=chosen, error=Error(kind=_kind(error), id=error.id, sentence=str(error)))
    return Visit(
        transport=transport.name, version=facts.version, clock_offset_s=facts.clock_offset_s, standing=facts.standing,
        contributor=facts.contributor, policies=sum(offer.kind == "manifest" for offer in offers),
    )  # fmt: skip


def _kind(error: SyncError) -> str:
    return "RemoteError" if error.exit_code == 6 else type(error).__name__


def _why_not(remote: Remote, chosen: str) -> Iterator[tuple[str, str]]:
    """The transports that were not chosen."""
    if remote.is_local:
        return
    if chosen != "openssh":
        yield "openssh", "there is no `ssh` here" if shutil.which("ssh") is None else "another one was asked for"
    if chosen != "paramiko":
        from syncd.transports.paramiko import target_of  # noqa: PLC0415 - a third of a second

        try:
            target_of(remote)
        except SyncError as error:
            yield "paramiko", str(error).removesuffix(": use --transport openssh")
        else:
            yield "paramiko", "`ssh` is there"


def _there(remote: Remote) -> tuple[Side | None, str]:
    """What the other side has, or why it cannot be asked."""
    try:
        answer = keys.ask_shell(remote, survey.health_question(remote.path))
    except SecondFactorError:
        return None, "a key alone lets nobody in there: it asks for a second factor"
    except LoginRefusedError:
        return None, "the key was refused"
    except SyncError as error:
        return None, str(error)
    except OSError:
        return None, "there is no `ssh` here to ask with"
    if REFUSED_PREFIX in answer.said:
        return None, _RESTRICTED
    found = survey.marked(answer.out)
    if "asked" not in found:
        return None, "its shell did not answer"
    kind = " ".join(found.get("kind", [])).strip()
    filesystem = kind if re.fullmatch(r"[A-Za-z0-9_./-]{1,40}", kind) else ""
    return Side(space=told_space(found), filesystem=filesystem), ""


def told_space(found: dict[str, list[str]]) -> Space:
    """The room that the answer to `health_question` tells of; numbers that are none are passed over."""
    # Filesystem, 1024-blocks, used, available, capacity, mounted on.
    fields = " ".join(found.get("df", [])).split()
    free = int(fields[3]) * _BLOCK if len(fields) >= 6 and re.fullmatch(_BLOCKS, fields[3]) else None
    return Space(free_bytes=free, quota_left_bytes=quota_left("\n".join(found.get("quota", [])), fields[:1]))


def quota_left(text: str, of: list[str] | None = None) -> int | None:
    """What `quota -w` says is left, in bytes: the least of all file systems, or that `of` those named. None: no limit.

    A line is: file system, blocks, quota, limit, (grace), files, quota, limit; a star marks what is over.
    """
    least: int | None = None
    for line in text.splitlines():
        name, *rest = line.split()[:20] or [""]
        numbers = [int(word.rstrip("*")) for word in rest if re.fullmatch(rf"{_BLOCKS}\*?", word)]
        most = (numbers[2] or numbers[1]) if len(numbers) == 6 else 0
        if most and (not of or name in of):
            left = max(0, most - numbers[0]) * _BLOCK
            least = left if least is None else min(least, left)
    return least


def _run(*command: str) -> str | None:
    """What a local program prints; None where it is not there, or does not answer."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=LOCAL_TIMEOUT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout


def _space_here(folder: Path) -> Space:
    try:
        told = os.statvfs(_nearest(folder))
    except OSError:
        return Space()
    return Space(free_bytes=told.f_bavail * told.f_frsize, quota_left_bytes=quota_left(_run("quota", "-w") or ""))


def _nearest(folder: Path) -> Path:
    return next(above for above in (folder, *folder.parents) if above.exists())


def filesystem_of(folder: Path) -> str:
    """The type of the file system that holds `folder`, or will; "" where the system does not say."""
    place = _nearest(folder).resolve()
    try:
        mounts = Path("/proc/self/mounts").read_text(errors="replace")
    except OSError:  # macOS: `mount` says "… on PATH (apfs, local, …)"
        lines = re.findall(r" on (.+) \(([a-z0-9]+)", _run("mount") or "")
    else:
        fields = [line.split(" ") for line in mounts.splitlines()]
        lines = [
            (re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), each[1]), each[2])
            for each in fields
            if len(each) > 2
        ]
    holds = [(len(above), number, kind) for number, (above, kind) in enumerate(lines) if place.is_relative_to(above)]
    return max(holds)[2] if holds else ""


def _open_paths(folder: Path) -> Iterator[tuple[str, str]]:
    """What others of this machine may write to."""
    settings = settings_file()
    for path in (settings.parent, settings, folder, folder / "state", folder / "outbox", folder / "v1"):
        with contextlib.suppress(OSError):
            mode = stat.S_IMODE(os.stat(path).st_mode)
            if mode & (stat.S_IWGRP | stat.S_IWOTH):
                yield str(path), f"{mode:04o}"


def _service() -> ServiceFacts:
    try:
        state = service.manager().state()
    except ServiceError as error:
        return ServiceFacts(error=str(error))
    return ServiceFacts(manager=state.manager, installed=state.installed, running=state.running, detail=state.detail)


def _client(folder: Path) -> ClientFacts:
    keeper, word = holder(folder), read_status(folder)
    verb = keeper.verb if keeper is not None else ""
    if word is None:
        return ClientFacts(runs=keeper is not None, verb=verb)
    age_s = max(0.0, time.time() - word.written_at)
    return ClientFacts(runs=keeper is not None, verb=verb, state=word.state, age_s=age_s, error=word.error)
