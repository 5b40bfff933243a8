"""What may stand between a laptop and the other side: `CHECKS`, in the order in which a connection meets it. Pure."""

from __future__ import annotations

import re

from anchorleg.findings import Check, Judgement, Judgements, Level, ok, problem, warning
from anchorleg.words import counted, roughly, sized
from syncd.doctor.facts import LaptopFacts, Space
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
_ASK_FOR_KEY = "ask the site for the fingerprint of its host key, then run `syncd setup` again"
#: What a person does about each kind of error of a login.
_ADVICE = {
    "ConfigError": "mend what is named",
    "UnreachableError": "look at the network, then run this again; `syncd watch` tries again by itself",
    "HostKeyError": _ASK_FOR_KEY,
    "LoginRefusedError": "do not try often: a few refusals are a ban at many sites",
    "SecondFactorError": "open that connection, then run this again",
    "StorageError": "free space, or choose another folder",
}


def _config(facts: LaptopFacts) -> Judgement:
    kept = f"as {facts.settings_file} has it" if facts.stored else "as it was typed"
    return ok(f"{facts.remote}, mirrored in {facts.folder} ({kept})")


def _transport(facts: LaptopFacts) -> Judgement:
    why = "chosen by hand" if facts.wanted != "auto" else "chosen by itself"
    others = "".join(f"; not {name}: {words}" for name, words in facts.why_not.items())
    return ok(f"{facts.chosen}, {why}{others}")


def _host_key(facts: LaptopFacts) -> Judgements:
    if facts.is_local:
        return None
    key = facts.host_key
    match key.state:
        case "known":
            return ok(f"{key.fingerprint}, as it was pinned")
        case "hidden":
            return ok(f"{key.fingerprint or 'known to ssh'}; {key.sentence}")
        case "unknown":
            return problem(f"the host shows {key.fingerprint}, and nothing is known of it here", _ASK_FOR_KEY)
        case "changed":
            return problem(key.sentence, _ASK_FOR_KEY)
        case _:
            return warning(f"not seen: {key.sentence or 'the host was not reached'}")


def _login(facts: LaptopFacts) -> Judgements:
    visit = facts.visit
    if visit is None:
        return warning("not tried: the host key comes first")
    if visit.error is None:
        return ok(f"works by {visit.transport}; {counted(visit.policies, 'policy', 'policies')} on offer")
    if visit.error.kind == "RemoteError":
        return None
    return problem(visit.error.sentence, _ADVICE.get(visit.error.kind, ""))


def _server(facts: LaptopFacts) -> Judgements:
    visit = facts.visit
    if visit is not None and visit.error is not None and visit.error.kind == "RemoteError":
        advice = "install the same version of Anchorleg on both sides; `syncd setup` finds it and the folder"
        return problem(visit.error.sentence, advice)
    if visit is None or visit.error is not None or visit.version is None:
        return None
    return ok(f"anchorleg {visit.version} over there, and it speaks our protocol")


def _clock(facts: LaptopFacts) -> Judgements:
    offset_s = facts.visit.clock_offset_s if facts.visit is not None and facts.visit.error is None else None
    if offset_s is None:
        return None
    ahead = "ahead of" if offset_s > 0 else "behind"
    found = f"the other side's is {abs(offset_s):.1f} s {ahead} ours" if abs(offset_s) >= SEEN_S else "both agree"
    if abs(offset_s) < SKEW_SEEN_S:
        return ok(found)
    level = Level.PROBLEM if abs(offset_s) >= SKEW_HARMS_S else Level.WARNING
    return Judgement(level, found, "set this machine's clock by the network (NTP)")


def _inbox(facts: LaptopFacts) -> Judgements:
    visit = facts.visit
    if visit is None or visit.error is not None:
        return None
    if visit.contributor is None:
        advice = "to send experience, ask for a key of your own, or to be let into the folder's group"
        return warning("the other side has none for us: we only fetch", advice)
    who, standing, most = visit.contributor, visit.standing, InboxLimits()
    if standing is None:
        return ok(f"{who}; by {visit.transport} it is not told how it stands")
    if standing.dropped:
        advice = f"ask the owner of the shared folder (`syncd readmit --contributor {who}`)"
        return problem(f"{who} was dropped: nothing of ours is taken any more", advice)
    if standing.held_s is not None:
        advice = "see why the segments were refused (docs/errors.md); they wait in the outbox"
        return warning(f"{who} is held for {roughly(standing.held_s)} more: {standing.why}", advice)
    found = f"{who}: {standing.segments:,} of {most.waiting_segments:,} segments, {sized(standing.bytes)} wait there"
    if max(standing.segments / most.waiting_segments, standing.bytes / most.waiting_bytes) < TIGHT:
        return ok(found)
    advice = "the learner over there is slower than the actors, or does not run: fewer environments, or wait"
    return warning(found, advice)


def _disk_here(facts: LaptopFacts) -> Judgement:
    return _room(facts.here.space, "free space here, or choose another folder with `syncd setup --folder`")


def _mirror(facts: LaptopFacts) -> Judgement:
    kind = facts.here.filesystem
    if _NETWORK.fullmatch(kind):
        advice = "a mirror, and its lock, are made for a disk of this machine: `syncd setup --folder` names another"
        return warning(f"it lies on {kind}, which tells of no changes", advice)
    return ok(
        f"it lies on {kind}, a disk of this machine: changes are told" if kind else "the system does not tell its disk"
    )


def _disk_there(facts: LaptopFacts) -> Judgements:
    if facts.there is not None:
        advice = "free space over there: the run needs it before we do"
        return _room(facts.there.space, advice, facts.there.filesystem)
    return None if facts.is_local else ok(f"not asked: {facts.there_error or 'the login comes first'}")


def _room(space: Space, advice: str, kind: str = "") -> Judgement:
    known = [count for count in (space.free_bytes, space.quota_left_bytes) if count is not None]
    if not known:
        return ok("its free space is not told")
    quota = "" if space.quota_left_bytes is None else f", {sized(space.quota_left_bytes)} left of the quota"
    free = "" if space.free_bytes is None else f"{sized(space.free_bytes)} free"
    found = (free + quota).removeprefix(", ") + f" ({kind})" * bool(kind)
    if min(known) >= LOW_SPACE_BYTES:
        return ok(found)
    return Judgement(Level.PROBLEM if min(known) < NO_SPACE_BYTES else Level.WARNING, found, advice)


def _permissions(facts: LaptopFacts) -> Judgement:
    if not facts.open_paths:
        return ok("nobody else may write to the settings, the state or the outbox")
    path, mode = facts.open_paths[0]
    others = f", and {len(facts.open_paths) - 1} more" if len(facts.open_paths) > 1 else ""
    return warning(f"others may change {path} (mode {mode}){others}", f"close it: chmod go-w {path}")


def _service(facts: LaptopFacts) -> Judgement:
    told = facts.service
    if told.error:
        return ok(f"none: {told.error}")
    if not told.installed:
        return ok(f"not installed ({told.manager}); `syncd install` keeps `watch` running")
    if told.running:
        return ok(f"{told.manager}: {told.detail}")
    advice = "`syncd agent-status` says why; `syncd install` starts it anew"
    return warning(f"installed, and does not run ({told.manager}: {told.detail})", advice)


def _last_contact(facts: LaptopFacts) -> Judgement:
    client = facts.client
    if client.age_s is None:
        return ok("no client has ever kept this mirror; `syncd watch` does")
    ago = f"{roughly(client.age_s)} ago"
    if client.runs and client.state in {"live", "syncing"}:
        return ok(f"`syncd {client.verb}` is connected ({client.state}, {ago})")
    if client.error:
        words = f"`syncd {client.verb}` runs" if client.runs else "no client runs"
        return warning(f"{words}; {ago} it said: {client.error}", "see the lines above for what it meets")
    return ok(f"{ago} ({client.state}); " + ("a client runs" if client.runs else "no client runs now"))


CHECKS: tuple[Check[LaptopFacts], ...] = (
    Check("config", _config),
    Check("transport", _transport),
    Check("host key", _host_key),
    Check("login", _login),
    Check("server", _server),
    Check("clock", _clock),
    Check("inbox", _inbox),
    Check("disk here", _disk_here),
    Check("mirror", _mirror),
    Check("disk there", _disk_there),
    Check("permissions", _permissions),
    Check("service", _service),
    Check("last contact", _last_contact),
)
