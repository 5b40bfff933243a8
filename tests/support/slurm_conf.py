"""The text of slurm.conf for a throw-away cluster of fake nodes on one machine. Pure.

Values were tried with Slurm 22.05.8 (Debian 12). What is not obvious has its reason beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: Read only where `task/cgroup` or `proctrack/cgroup` is asked for.
CGROUP_CONF = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nCgroupAutomount=no\nConstrainRAMSpace=yes\n"


@dataclass(frozen=True)
class Layout:
    """What the cluster claims to be; the machine need not have it. Memory in MB a node.

    `accounting`: with slurmdbd, a history (sacct) and limits on users.
    """

    nodes: int = 4
    cpus: int = 8
    gpus: int = 1
    memory_mb: int = 16_000
    accounting: bool = False

    def node_names(self) -> list[str]:
        """`n1`, `n2`, …"""
        return [f"n{number}" for number in range(1, self.nodes + 1)]


@dataclass(frozen=True)
class Site:
    """Where the cluster lives: folder, user and host name, ports (controller, slurmdbd, then one a node). `beside`:
    another cluster's folder, whose munge and slurmdbd this one uses.
    """

    folder: Path
    user: str
    host: str
    ports: Sequence[int]
    is_root: bool
    beside: Path | None = None

    @property
    def name(self) -> str:
        """The cluster's."""
        return "second" if self.beside else "test"

    @property
    def munge_socket(self) -> Path:
        """Every Slurm command finds it through AuthInfo."""
        return (self.beside or self.folder) / "munge" / "socket"


def slurm_conf(layout: Layout, site: Site, overrides: Mapping[str, str] | None = None) -> str:
    """The text of slurm.conf. An override of "" removes our line, so that Slurm's own default holds."""
    history = _accounting_values(site) if layout.accounting else {}
    values = {**_values(site), **history, **(overrides or {})}
    lines = [f"{key}={value}" for key, value in values.items() if value != ""]
    gres = f" Gres=gpu:fake:{layout.gpus}" if layout.gpus else ""
    for name, port in zip(layout.node_names(), site.ports[2:], strict=True):
        lines.append(
            f"NodeName={name} NodeHostname={site.host} NodeAddr=127.0.0.1 Port={port} CPUs={layout.cpus} Boards=1 "
            f"SocketsPerBoard=1 CoresPerSocket={layout.cpus} ThreadsPerCore=1 RealMemory={layout.memory_mb}{gres} "
            "State=UNKNOWN"
        )
    lines.append("PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10 State=UP")
    lines.append("PartitionName=short Nodes=ALL MaxTime=1 State=UP")
    return "\n".join(lines) + "\n"


def gres_conf(layout: Layout, site: Site) -> str:
    """The text of gres.conf. Only a character device makes Slurm set CUDA_VISIBLE_DEVICES."""
    if not layout.gpus:
        return ""
    names = "nvidia0" if layout.gpus == 1 else f"nvidia[0-{layout.gpus - 1}]"
    return f"Name=gpu Type=fake Flags=nvidia_gpu_env File={site.folder}/dev/{names}\n"


def _values(site: Site) -> dict[str, str]:
    folder = site.folder
    return {
        "ClusterName": site.name,
        "SlurmctldHost": f"{site.host}(127.0.0.1)",
        "SlurmctldPort": str(site.ports[0]),
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={site.munge_socket}",
        "CredType": "cred/munge",
        # Both: with the first alone slurmctld listens on every interface.
        "CommunicationParameters": "NoInAddrAny,NoCtldInAddrAny",
        "SlurmUser": site.user,
        "SlurmdUser": site.user,
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/run/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/run/slurmd.%n.pid",
        "SlurmctldLogFile": f"{folder}/log/slurmctld.log",
        "SlurmdLogFile": f"{folder}/log/slurmd.%n.log",
        "SlurmctldDebug": "verbose",
        "SlurmdDebug": "verbose",
        "ProctrackType": "proctrack/linuxproc" if site.is_root else "proctrack/pgid",
        "TaskPlugin": "task/none",
        "SwitchType": "switch/none",
        "MpiDefault": "none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core_Memory",
        "GresTypes": "gpu",
        "SlurmdParameters": "config_overrides",  # believe the claimed CPUs and memory
        "SchedulerType": "sched/backfill",
        # batch_sched_delay is 3 s by default: most of a test's time. bf_interval stays above 1: a start by the
        # backfill scheduler is not saved at once, and a killed slurmctld would run every such job twice.
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,bf_interval=10,bf_continue",
        "MailProg": "/bin/true",
        "ReturnToService": "2",
        "SlurmctldTimeout": "10",
        "SlurmdTimeout": "30",
        "MessageTimeout": "5",
        "TCPTimeout": "2",
        "KillWait": "15",  # a job that is cancelled writes down its end, which takes a busy disk seconds
        "MinJobAge": "300",  # Slurm's default; a test that waits for the purge overrides it
        "OverTimeLimit": "0",
        "BatchStartTimeout": "60",
        "CompleteWait": "0",
        "UnkillableStepTimeout": "120",
        "JobRequeue": "1",
        "DefMemPerCPU": "100",
        "PriorityType": "priority/basic",
        "JobAcctGatherType": "jobacct_gather/none",
        # One line a finished job, written at once: what the tests know without any database.
        "JobCompType": "jobcomp/filetxt",
        "JobCompLoc": f"{folder}/log/jobcomp.log",
        "AccountingStorageType": "accounting_storage/none",
    }


def _accounting_values(site: Site) -> dict[str, str]:
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": "127.0.0.1",
        "AccountingStoragePort": str(site.ports[1]),
        "AccountingStoragePass": str(site.munge_socket),
        "AccountingStorageEnforce": "limits,qos",
        "AccountingStorageTRES": "gres/gpu",  # fatal without slurmdbd
    }
