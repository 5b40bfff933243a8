"""What lies between this machine and the other side: files here, the host key, one connection, one line for the shell
over there. `gather` alone touches anything.

At most two logins, and the second only where the first was let in: refused keys are counted at many sites.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from anchorleg.disks import BLOCK_BYTES, BLOCKS, filesystem_of, free_room, nearest_folder, parse_quota, printed
from anchorleg.places import short_path
from syncd.access import keys, survey
from syncd.access.settings import Settings, settings_file
from syncd.background import service
from syncd.errors import HostKeyError, LoginRefusedError, SecondFactorError, ServiceError, SyncError
from syncd.laptop.lock import holder
from syncd.laptop.status import read_status
from syncd.remote import Remote
from syncd.transports.factory import choose_transport, open_transport
from syncd.wire.protocol import REFUSED_PREFIX, Standing


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Error(_Frozen):
    """What an attempt ended with: the class of `syncd.errors`, its identifier, its sentence."""

    kind: str
    id: str = ""
    sentence: str


class HostKeyFacts(_Frozen):
    """`state`: known by this key; nothing known of the host; known by another key; behind a jump host; not asked."""

    state: Literal["known", "unknown", "changed", "hidden", "unasked"]
    fingerprint: str = ""
    sentence: str = ""


class Visit(_Frozen):
    """One connection by the transport that a client would choose. `error` None: the other side answered."""

    transport: str
    error: Error | None = None
    version: str | None = None
    clock_offset_s: float | None = None
    contributor: str | None = None
    standing: Standing | None = None
    policies: int = 0


class Space(_Frozen):
    """Room for one account's files: free bytes on the disk, and what its quota leaves (None: no such quota is told)."""

    free_bytes: int | None = None
    quota_left_bytes: int | None = None


class Side(_Frozen):
    """What one machine has."""

    space: Space = Space()
    filesystem: str = ""


class ServiceFacts(_Frozen):
    """The background service. `error`: its manager did not answer, and why."""

    manager: str = ""
    installed: bool = False
    running: bool = False
    detail: str = ""
    error: str = ""


class ClientFacts(_Frozen):
    """What the last client of the mirror said, and whether one runs. Ages in seconds."""

    runs: bool = False
    verb: str = ""
    state: str = ""
    age_s: float | None = None
    error: str = ""


class LaptopFacts(_Frozen):
    """All of it. `why_not`: transport → why it was not chosen. `open_paths`: what others may write to, and its mode."""

    settings_file: str
    stored: bool
    remote: str
    is_local: bool
    folder: str
    host_key: HostKeyFacts = HostKeyFacts(state="unasked")
    chosen: str
    wanted: str = "auto"
    why_not: dict[str, str] = {}
    visit: Visit | None = None
    here: Side = Side()
    there: Side | None = None
    there_error: str = ""
    open_paths: tuple[tuple[str, str], ...] = ()
    service: ServiceFacts = ServiceFacts()
    client: ClientFacts = ClientFacts()


def gather(remote: Remote, folder: Path, settings: Settings, name: str) -> LaptopFacts:
    """Look at everything between this machine and `remote`. `name`: how this machine calls itself. Errors: none."""
    chosen = choose_transport(remote, settings.transport)
    host_key = _host_key(remote) if not remote.is_local else HostKeyFacts(state="unasked")
    is_safe = host_key.state not in {"unknown", "changed"}
    visit = _visit(remote, settings, name) if is_safe else None
    there, there_error = None, ""
    if visit is not None and not remote.is_local and (visit.error is None or visit.error.kind == "RemoteError"):
        there, there_error = ask_other_side(remote)
    free_bytes, _ = free_room(nearest_folder(folder))
    quota_left_bytes = quota_left(printed("quota", "-w")) if free_bytes is not None else None
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
        here=Side(
            space=Space(free_bytes=free_bytes, quota_left_bytes=quota_left_bytes),
            filesystem=filesystem_of(nearest_folder(folder)),
        ),
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
        kind = "RemoteError" if error.exit_code == 6 else type(error).__name__
        return Visit(transport=chosen, error=Error(kind=kind, id=error.id, sentence=str(error)))
    return Visit(
        transport=transport.name, version=facts.version, clock_offset_s=facts.clock_offset_s, standing=facts.standing,
        contributor=facts.contributor, policies=sum(offer.kind == "manifest" for offer in offers),
    )  # fmt: skip


def _why_not(remote: Remote, chosen: str) -> Iterator[tuple[str, str]]:
    """The transports that were not chosen."""
    if remote.is_local:
        return
    if chosen != "openssh":
        yield "openssh", "there is no `ssh` here" if shutil.which("ssh") is None else "another one was asked for"
    if chosen != "paramiko":
        from syncd.transports.paramiko import target_of

        try:
            target_of(remote)
        except SyncError as error:
            yield "paramiko", str(error).removesuffix(": use --transport openssh")
        else:
            yield "paramiko", "`ssh` is there"


def ask_other_side(remote: Remote) -> tuple[Side | None, str]:
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
        return None, "our key is restricted to the weights and its own inbox"
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
    free = int(fields[3]) * BLOCK_BYTES if len(fields) >= 6 and re.fullmatch(BLOCKS, fields[3]) else None
    return Space(free_bytes=free, quota_left_bytes=quota_left("\n".join(found.get("quota", [])), fields[:1]))


def quota_left(text: str, of: list[str] | None = None) -> int | None:
    """What `quota -w` says is left, in bytes: the least of all filesystems, or of those named. None: no limit."""
    quotas = [one for one in parse_quota(text) if not of or one.filesystem in of]
    return min((max(0, one.limit_bytes - one.used_bytes) for one in quotas if one.limit_bytes), default=None)


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
