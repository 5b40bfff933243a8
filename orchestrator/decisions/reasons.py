"""Why a job waits: Slurm's reason in plain words, and whether waiting helps. Pure.

Sources: squeue(1) "JOB REASON CODES", slurm.schedmd.com/job_reason_codes.html and job_state_reason.c up to 25.05, and
the sentences of slurmctld that squeue shows in place of a code (job_mgr.c, node_scheduler.c).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

#: waits: it passes by itself. person: the user or an administrator has to act, and may; the job is left alone.
#: for ever: this very job can never run, whatever time passes; another request might.
Kind = Literal["waits", "person", "for ever"]


@dataclass(frozen=True)
class PendingReason:
    """`words`: to be read after "job 12 ", without a full stop."""

    kind: Kind
    words: str


def _waits(words: str) -> PendingReason:
    return PendingReason("waits", words)


def _person(words: str) -> PendingReason:
    return PendingReason("person", words)


def _never(words: str) -> PendingReason:
    return PendingReason("for ever", f"can never run: {words}")


#: A code, exactly as Slurm prints it. What is not here waits, and is shown in Slurm's own word.
REASONS: Mapping[str, PendingReason] = {
    "Priority": _waits("waits for its turn (other jobs have a higher priority)"),
    "Resources": _waits("is next: it waits for enough free CPUs, GPUs and memory"),
    "WaitingForScheduling": _waits("is new: Slurm has not considered it yet"),
    "Dependency": _waits("is queued behind another job"),
    "DependencyNeverSatisfied": _never("it was queued behind a job that did not end as required"),
    "BeginTime": _waits("waits for its earliest start time (after a requeue Slurm waits about two minutes)"),
    "JobHeldUser": _person("is held by you: release it with `scontrol release`"),
    "JobHeldAdmin": _person("is held by an administrator: ask your site"),
    "JobHoldMaxRequeue": _person("is held after too many requeues: ask your site, or use `scontrol release`"),
    "PartitionDown": _person("waits: its partition is closed by the administrators"),
    "PartitionInactive": _person("waits: its partition is switched off by the administrators"),
    "PartitionConfig": _waits(
        "waits: its partition cannot give what it asks for now; `orchestrator doctor` says whether it ever can"
    ),
    "PartitionTimeLimit": _never(
        "its time limit is longer than the partition allows; lower slurm.time_limit or choose another slurm.partition"
    ),
    "PartitionNodeLimit": _never(
        "it asks for more nodes than the partition allows for one job; choose another slurm.partition"
    ),
    "ReqNodeNotAvail": _waits("waits: the nodes that it could use are down, drained or reserved"),
    "Licenses": _waits("waits for a free licence"),
    "Reservation": _waits("waits for its reservation to begin"),
    "ReservationDeleted": _never("its reservation was deleted; take the reservation out of slurm.extra"),
    "ReservationInvalid": _never("its reservation is not valid; take the reservation out of slurm.extra"),
    "RequiresReservation": _never("its partition takes only jobs with a reservation; choose another slurm.partition"),
    "ReqResv": _never("its partition takes only jobs with a reservation; choose another slurm.partition"),
    "BadConstraints": _never("no node has what it asks for; check slurm.constraint, gpu_type, mem and cpus_per_task"),
    "MaxMemPerLimit": _never("it asks for more memory than one job may have; lower slurm.mem"),
    "InvalidAccount": _person("waits: Slurm does not know its account; check slurm.account, or ask your site"),
    "InvalidQOS": _person("waits: Slurm does not know its QOS; check slurm.qos, or ask your site"),
    "AccountNotAllowed": _person("waits: its account may not use the partition; check slurm.account"),
    "QOSNotAllowed": _person("waits: its QOS may not use the partition; check slurm.qos"),
    "AccountingPolicy": _waits("waits: a limit of your account is reached"),
    "QOSUsageThreshold": _waits("waits: you have used more than your share, which recovers with time"),
    "AssociationJobLimit": _waits("waits: you have as many jobs as your account allows"),
    "AssociationTimeLimit": _waits("waits: the computing time of your account is used up"),
    "QOSJobLimit": _waits("waits: your QOS has as many jobs as it allows"),
    "QOSTimeLimit": _waits("waits: the computing time of your QOS is used up"),
    "DeadLine": _never("its deadline has passed"),
}

#: Of the reasons for ever those of one partition. Slurm tries a job's partitions one after the other, and writes each
#: one's reason into the same record. A partition may have a QOS of its own.
_OF_ONE_PARTITION = ("Partition", "QOSM", "MaxMemPerLimit", "ReqResv", "RequiresReservation")

#: The state of a job whose node is switched on, or started anew, for it; it has no reason then.
BOOTING = "CONFIGURING"

#: A sentence that squeue shows in place of a code (in some versions with underscores for blanks), the surest first; as
#: a pattern, in small letters.
LAUNCH_FAILED_HELD = "launch failed requeued held"
_SENTENCES: tuple[tuple[str, PendingReason], ...] = (
    (LAUNCH_FAILED_HELD, _person("is held, because a node failed to start it: it is submitted again to another node")),
    ("requeued held", _person("is held by Slurm after a failed start: release it with `scontrol release`")),
    ("reserved for maintenance", _waits("waits for the end of a maintenance")),
    ("reqnodenotavail", REASONS["ReqNodeNotAvail"]),
    ("nodes required for job are down", REASONS["ReqNodeNotAvail"]),
    ("account not permitted", REASONS["AccountNotAllowed"]),
    ("qos not permitted", REASONS["QOSNotAllowed"]),
    ("reservation .*was deleted", REASONS["ReservationDeleted"]),
    ("reservation .*is invalid", REASONS["ReservationInvalid"]),
    ("reservation", REASONS["Reservation"]),
)

#: A limit of accounting. Slurm has some 150 codes of them, made of few parts: whose, of what, and for whom.
_LIMIT = re.compile(r"(Assoc|QOS|)(Grp|Max|Min)([A-Z]\w*?)(Per(?:Job|Node|User|Account|Acct))?(Limit|NotSatisfied)?")


def reason_of(text: str, partition: str = "") -> PendingReason:
    """What squeue's reason means; one that nobody knows waits. `partition`: the job's, with commas between."""
    text = text.strip().strip("()")
    reason = _read(text)
    if reason.kind == "for ever" and text.startswith(_OF_ONE_PARTITION) and "," in partition:
        return _waits("waits: one of its partitions refuses it, another may accept it")
    return reason


def _read(text: str) -> PendingReason:
    if text in REASONS:
        return REASONS[text]
    if text in {"", "None"}:
        return REASONS["WaitingForScheduling"]
    if (limit := _limit(text)) is not None:
        return limit
    plain = text.replace("_", " ").lower()
    for sentence, reason in _SENTENCES:
        if re.search(sentence, plain):
            nodes = re.search(r"UnavailableNodes:(\S+)", text)
            return PendingReason(reason.kind, f"{reason.words} ({nodes[1]})") if nodes else reason
    return _waits(f"waits (Slurm says: {text})")


def _limit(text: str) -> PendingReason | None:
    if (match := _LIMIT.fullmatch(text)) is None:
        return None
    who = "your QOS" if match[1] == "QOS" else "your account"
    if match[2] == "Min":
        return _never(f"it asks for too little ({match[3]}) for {who}; ask for more, or change slurm.qos")
    if match[2] == "Grp":
        return _waits(f"waits: all users of {who} together have reached a limit ({match[3]}); this passes with time")
    if match[4] in {"PerJob", "PerNode"}:
        if match[3].startswith("Wall") or "Minutes" in match[3]:
            return _never(f"its time limit is longer than {who} allows; lower slurm.time_limit")
        return _never(f"it asks for more ({match[3]}) than {who} allows one job; ask for less in the slurm section")
    if match[4] or match[5]:
        return _waits(f"waits: {who} allows you no more ({match[3]}) at once")
    return None
