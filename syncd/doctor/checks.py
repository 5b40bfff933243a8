"""Judges the facts. Pure: one finding a check, in the order in which a connection meets them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from anchorleg.findings import Finding, Level
from anchorleg.words import counted, roughly, sized
from syncd.doctor.facts import LaptopFacts, Side, Space
from syncd.shared.inbox import InboxLimits

#: A mirror keeps three policies a slot, and an outbox of 256 MiB: below this they may not find room.
LOW_SPACE_BYTES = 2**30
#: Not one policy, nor a minute of experience.
NO_SPACE_BYTES = 16 * 2**20
#: Latencies are put right by the difference; files' ages over there and "seconds ago" here are not.
SKEW_SEEN_S = 2.0
#: Below this it is the time that the question took.
SEEN_S = 0.1
#: So far off, certificates and second factors by time stop to work.
SKEW_HARMS_S = 60.0
#: Of the inbox's quota.
TIGHT = 0.8
#: Where events of other machines' changes do not arrive, and locks are a matter of luck.
_NETWORK = re.compile(r"nfs\d?|cifs|smb\w*|afpfs|afs|lustre|gpfs|beegfs|ceph|9p|fuse\.(sshfs|glusterfs|rclone)")
#: What a person does about each kind of error.
_ADVICE = {
    "ConfigError": "mend what is named",
    "UnreachableError": "look at the network, then run this again; `syncd watch` tries again by itself",
    "HostKeyError": "ask the site for the fingerprint of its host key, then run `syncd setup` again",
    "LoginRefusedError": "do not try often: a few refusals are a ban at many sites",
    "SecondFactorError": "open that connection, then run this again",
    "RemoteError": "install the same version of Anchorleg on both sides; `syncd setup` finds it and the folder",
    "StorageError": "free space, or choose another folder",
}


def examine(facts: LaptopFacts) -> tuple[Finding, ...]:
    """Every check, in the order in which they are shown."""
    return tuple(_all(facts))


def _all(facts: LaptopFacts) -> Iterator[Finding]:
    kept = f"as {facts.settings_file} has it" if facts.stored else "as it was typed"
    yield _ok("config", f"{facts.remote}, mirrored in {facts.folder} ({kept})")
    yield _transport(facts)
    if not facts.is_local:
        yield _host_key(facts)
    yield from _visited(facts)
    yield _space("disk here", facts.here.space, "free space here, or choose another folder with `syncd setup --folder`")
    yield _filesystem(facts.here)
    if facts.there is not None:
        yield _space(
            "disk there",
            facts.there.space,
            "free space over there: the run needs it before we do",
            facts.there.filesystem,
        )
    elif not facts.is_local:
        yield _ok("disk there", f"not asked: {facts.there_error or 'the login comes first'}")
    yield _permissions(facts)
    yield _service(facts)
    yield _client(facts)


def _ok(check: str, found: str) -> Finding:
    return Finding(check=check, level=Level.OK, found=found)


def _transport(facts: LaptopFacts) -> Finding:
    why = "chosen by hand" if facts.wanted != "auto" else "chosen by itself"
    others = "".join(f"; not {name}: {words}" for name, words in facts.why_not.items())
    return _ok("transport", f"{facts.chosen}, {why}{others}")


def _host_key(facts: LaptopFacts) -> Finding:
    key, check = facts.host_key, "host key"
    match key.state:
        case "known":
            return _ok(check, f"{key.fingerprint}, as it was pinned")
        case "hidden":
            return _ok(check, f"{key.fingerprint or 'known to ssh'}; {key.sentence}")
        case "unknown":
            found = f"the host shows {key.fingerprint}, and nothing is known of it here"
            return Finding(check=check, level=Level.PROBLEM, found=found, advice=_ADVICE["HostKeyError"])
        case "changed":
            return Finding(check=check, level=Level.PROBLEM, found=key.sentence, advice=_ADVICE["HostKeyError"])
        case _:
            found = f"not seen: {key.sentence or 'the host was not reached'}"
            return Finding(check=check, level=Level.WARNING, found=found)


def _visited(facts: LaptopFacts) -> Iterator[Finding]:
    """The login, the server, its clock, our inbox there: what one connection tells."""
    visit = facts.visit
    if visit is None:
        words = "not tried: the host key comes first"
        yield Finding(check="login", level=Level.WARNING, found=words)
        return
    if visit.error is not None:
        check = "server" if visit.error.kind == "RemoteError" else "login"
        advice = _ADVICE.get(visit.error.kind, "")
        yield Finding(check=check, level=Level.PROBLEM, found=visit.error.sentence, advice=advice)
        return
    number = f"{counted(visit.policies, 'policy', 'policies')} on offer"
    yield _ok("login", f"works by {visit.transport}; {number}")
    if visit.version is not None:
        yield _ok("server", f"anchorleg {visit.version} over there, and it speaks our protocol")
    if visit.clock_offset_s is not None:
        yield _clock(visit.clock_offset_s)
    yield _inbox(facts)


def _clock(offset_s: float) -> Finding:
    ahead = "ahead of" if offset_s > 0 else "behind"
    found = f"the other side's is {abs(offset_s):.1f} s {ahead} ours" if abs(offset_s) >= SEEN_S else "both agree"
    if abs(offset_s) < SKEW_SEEN_S:
        return _ok("clock", found)
    level = Level.PROBLEM if abs(offset_s) >= SKEW_HARMS_S else Level.WARNING
    return Finding(check="clock", level=level, found=found, advice="set this machine's clock by the network (NTP)")


def _inbox(facts: LaptopFacts) -> Finding:
    visit = facts.visit
    if visit is None or visit.contributor is None:
        advice = "to send experience, ask for a key of your own, or to be let into the folder's group"
        return Finding(
            check="inbox", level=Level.WARNING, found="the other side has none for us: we only fetch", advice=advice
        )
    who, standing = visit.contributor, visit.standing
    if standing is None:
        return _ok("inbox", f"{who}; by {visit.transport} it is not told how it stands")
    if standing.dropped:
        return Finding(
            check="inbox", level=Level.PROBLEM, found=f"{who} was dropped: nothing of ours is taken any more",
            advice=f"ask the owner of the shared folder (`syncd readmit --contributor {who}`)",
        )  # fmt: skip
    if standing.held_s is not None:
        return Finding(
            check="inbox", level=Level.WARNING,
            found=f"{who} is held for {roughly(standing.held_s)} more: {standing.why}",
            advice="see why the segments were refused (docs/errors.md); they wait in the outbox",
        )  # fmt: skip
    most = InboxLimits()
    found = f"{who}: {standing.segments:,} of {most.waiting_segments:,} segments, {sized(standing.bytes)} wait there"
    if max(standing.segments / most.waiting_segments, standing.bytes / most.waiting_bytes) < TIGHT:
        return _ok("inbox", found)
    advice = "the learner over there is slower than the actors, or does not run: fewer environments, or wait"
    return Finding(check="inbox", level=Level.WARNING, found=found, advice=advice)


def _space(check: str, space: Space, advice: str, kind: str = "") -> Finding:
    known = [count for count in (space.free_bytes, space.quota_left_bytes) if count is not None]
    if not known:
        return _ok(check, "its free space is not told")
    quota = "" if space.quota_left_bytes is None else f", {sized(space.quota_left_bytes)} left of the quota"
    free = "" if space.free_bytes is None else f"{sized(space.free_bytes)} free"
    found = (free + quota).removeprefix(", ") + f" ({kind})" * bool(kind)
    if min(known) >= LOW_SPACE_BYTES:
        return _ok(check, found)
    level = Level.PROBLEM if min(known) < NO_SPACE_BYTES else Level.WARNING
    return Finding(check=check, level=level, found=found, advice=advice)


def _filesystem(side: Side) -> Finding:
    kind = side.filesystem
    if _NETWORK.fullmatch(kind):
        return Finding(
            check="mirror", level=Level.WARNING,
            found=f"it lies on {kind}, which tells of no changes",
            advice="a mirror, and its lock, are made for a disk of this machine: `syncd setup --folder` names another",
        )  # fmt: skip
    return _ok(
        "mirror",
        f"it lies on {kind}, a disk of this machine: changes are told" if kind else "the system does not tell its disk",
    )


def _permissions(facts: LaptopFacts) -> Finding:
    if not facts.open_paths:
        return _ok("permissions", "nobody else may write to the settings, the state or the outbox")
    path, mode = facts.open_paths[0]
    others = f", and {len(facts.open_paths) - 1} more" if len(facts.open_paths) > 1 else ""
    return Finding(
        check="permissions", level=Level.WARNING, found=f"others may change {path} (mode {mode}){others}",
        advice=f"close it: chmod go-w {path}",
    )  # fmt: skip


def _service(facts: LaptopFacts) -> Finding:
    service = facts.service
    if service.error:
        return _ok("service", f"none: {service.error}")
    if not service.installed:
        return _ok("service", f"not installed ({service.manager}); `syncd install` keeps `watch` running")
    if service.running:
        return _ok("service", f"{service.manager}: {service.detail}")
    advice = "`syncd agent-status` says why; `syncd install` starts it anew"
    found = f"installed, and does not run ({service.manager}: {service.detail})"
    return Finding(check="service", level=Level.WARNING, found=found, advice=advice)


def _client(facts: LaptopFacts) -> Finding:
    client, check = facts.client, "last contact"
    if client.age_s is None:
        return _ok(check, "no client has ever kept this mirror; `syncd watch` does")
    ago = f"{roughly(client.age_s)} ago"
    if client.runs and client.state in {"live", "syncing"}:
        return _ok(check, f"`syncd {client.verb}` is connected ({client.state}, {ago})")
    if client.error:
        words = f"`syncd {client.verb}` runs" if client.runs else "no client runs"
        found = f"{words}; {ago} it said: {client.error}"
        return Finding(check=check, level=Level.WARNING, found=found, advice="see the lines above for what it meets")
    return _ok(check, f"{ago} ({client.state}); " + ("a client runs" if client.runs else "no client runs now"))
