"""What may stand between this machine and the other side: `gather` looks, and alone touches anything; `CHECKS` judge,
in the order in which a connection meets them. One login at most: refused keys are counted at many sites.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from anchorleg.disks import filesystem_of, free_room, nearest_folder, parse_quota, printed
from anchorleg.findings import Check, Judgement, Judgements, Level, ok, problem, warning
from anchorleg.places import short_path
from anchorleg.words import counted, sized
from syncd.access import keys
from syncd.errors import HostKeyError, RemoteError, SyncError
from syncd.remote import Remote, Settings, settings_file
from syncd.transports import open_transport

#: A mirror keeps three policies a slot, and an outbox of 256 MiB: below this they may not find room.
LOW_SPACE_BYTES = 2**30
#: Not one policy, nor a minute of experience.
NO_SPACE_BYTES = 16 * 2**20
#: Latencies are put right by the difference; files' ages over there and "seconds ago" here are not.
SKEW_SEEN_S = 2.0
#: So far off, certificates and second factors by time stop to work.
SKEW_HARMS_S = 60.0
#: Where events of other machines' changes do not arrive, and locks are a matter of luck.
_NETWORK = re.compile(r"nfs\d?|cifs|smb\w*|afpfs|afs|lustre|gpfs|beegfs|ceph|9p|fuse\.(sshfs|glusterfs|rclone)")
_ASK_FOR_KEY = "ask the site for the fingerprint of its host key, then run `syncd setup` again"
#: What a person does about each kind of error of a login.
_ADVICE = {
    "ConfigError": "correct what is named",
    "UnreachableError": "check the network, then run this again; `syncd watch` retries by itself",
    "HostKeyError": _ASK_FOR_KEY,
    "LoginRefusedError": "do not try often: many sites ban after a few refusals",
    "SecondFactorError": "open that connection, then run this again",
    "RemoteError": "install the same version of Anchorleg on both sides; `syncd setup` then finds it and the folder",
    "StorageError": "free space, or choose another folder",
}


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HostKeyFacts(_Frozen):
    """`state`: known by this key; nothing known of the host; known by another key; behind a jump host; not asked."""

    state: Literal["known", "unknown", "changed", "hidden", "unasked"]
    fingerprint: str = ""
    sentence: str = ""


class Visit(_Frozen):
    """One connection by the transport that a client would choose. `error`: the class of `syncd.errors` that it ended
    with, and its `sentence`; "": the other side answered.
    """

    transport: str
    error: str = ""
    sentence: str = ""
    version: str | None = None
    clock_offset_s: float | None = None
    contributor: str | None = None
    policies: int = 0


class LaptopFacts(_Frozen):
    """All of it. `free_bytes`, `quota_left_bytes`: None where that is not told."""

    settings_file: str
    stored: bool
    remote: str
    is_local: bool
    folder: str
    host_key: HostKeyFacts = HostKeyFacts(state="unasked")
    visit: Visit | None = None
    free_bytes: int | None = None
    quota_left_bytes: int | None = None
    filesystem: str = ""


def gather(remote: Remote, folder: Path, settings: Settings, name: str) -> LaptopFacts:
    """Look at everything between this machine and `remote`. `name`: how this machine calls itself. Errors: none."""
    host_key = _seen_key(remote) if not remote.is_local else HostKeyFacts(state="unasked")
    quotas = [one.limit_bytes - one.used_bytes for one in parse_quota(printed("quota", "-w")) if one.limit_bytes]
    return LaptopFacts(
        settings_file=short_path(settings_file()),
        stored=settings.remote is not None and remote.host == settings.remote.host,
        remote=str(remote),
        is_local=remote.is_local,
        folder=short_path(folder),
        host_key=host_key,
        visit=None if host_key.state in {"unknown", "changed"} else _visited(remote, name),
        free_bytes=free_room(nearest_folder(folder))[0],
        quota_left_bytes=max(0, min(quotas)) if quotas else None,
        filesystem=filesystem_of(nearest_folder(folder)),
    )


def _seen_key(remote: Remote) -> HostKeyFacts:
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


def _visited(remote: Remote, name: str) -> Visit:
    try:
        transport = open_transport(remote, client=name)
        try:
            policies = transport.listing().policies
            facts = transport.facts()
        finally:
            transport.close()
    except SyncError as error:
        kind = "RemoteError" if isinstance(error, RemoteError) else type(error).__name__
        return Visit(transport="local" if remote.is_local else "openssh", error=kind, sentence=f"{error.with_id()}")
    return Visit(
        transport=transport.name, version=facts.version, clock_offset_s=facts.clock_offset_s,
        contributor=facts.contributor, policies=policies,
    )  # fmt: skip


def _config(facts: LaptopFacts) -> Judgement:
    kept = f"as {facts.settings_file} has it" if facts.stored else "as typed"
    return ok(f"{facts.remote}, mirrored in {facts.folder} ({kept})")


def _host_key(facts: LaptopFacts) -> Judgements:
    if facts.is_local:
        return None
    key = facts.host_key
    match key.state:
        case "known":
            return ok(f"{key.fingerprint}, as stored")
        case "hidden":
            return ok(f"{key.fingerprint or 'known to ssh'}; {key.sentence}")
        case "unknown":
            return problem(f"the host shows {key.fingerprint}, which is not known here", _ASK_FOR_KEY)
        case "changed":
            return problem(key.sentence)
        case _:
            return warning(f"not seen: {key.sentence or 'the host was not reached'}")


def _login(facts: LaptopFacts) -> Judgement:
    visit = facts.visit
    if visit is None:
        return warning("not tried", "solve the problem with the host key first")
    if visit.error:
        return problem(visit.sentence, _ADVICE.get(visit.error, ""))
    version = f" (anchorleg {visit.version} there)" if visit.version is not None else ""
    return ok(f"works by {visit.transport}; {counted(visit.policies, 'policy', 'policies')} on offer{version}")


def _clock(facts: LaptopFacts) -> Judgements:
    offset_s = facts.visit.clock_offset_s if facts.visit is not None else None
    if offset_s is None:
        return None
    found = f"the other side's is {abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'} ours"
    if abs(offset_s) < SKEW_SEEN_S:
        return ok(found)
    level = Level.PROBLEM if abs(offset_s) >= SKEW_HARMS_S else Level.WARNING
    return Judgement(level, found, "set this machine's clock by the network (NTP)")


def _inbox(facts: LaptopFacts) -> Judgements:
    visit = facts.visit
    if visit is None or visit.error:
        return None
    if visit.contributor is None:
        advice = "to send experience, ask for a key of your own, or to be let into the folder's group"
        return warning("the other side has none for this machine, so it only fetches", advice)
    return ok(f"ours is {visit.contributor}; `syncd status` shows how much was accepted")


def _disk(facts: LaptopFacts) -> Judgement:
    known = [count for count in (facts.free_bytes, facts.quota_left_bytes) if count is not None]
    found = f"{sized(min(known))} free" if known else "its free space is unknown"
    if facts.filesystem:
        found += f" ({facts.filesystem})"
    if known and min(known) < LOW_SPACE_BYTES:
        level = Level.PROBLEM if min(known) < NO_SPACE_BYTES else Level.WARNING
        return Judgement(level, found, "free space here, or choose another folder with `syncd setup --folder`")
    if _NETWORK.fullmatch(facts.filesystem):
        advice = "a mirror and its lock need a local disk: choose another folder with `syncd setup --folder`"
        return warning(found, advice)
    return ok(found)


CHECKS: tuple[Check[LaptopFacts], ...] = (
    Check("config", _config),
    Check("host key", _host_key),
    Check("login", _login),
    Check("clock", _clock),
    Check("inbox", _inbox),
    Check("disk", _disk),
)
