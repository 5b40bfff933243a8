"""A cluster of several hosts, each with a network and a clock of its own, that share a folder by real NFS 4.2."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest
from debian_root import SITE
from guest_agent import HOSTS, LAPTOP
from policies import RUN, publish_one
from several_hosts import HOME, Guest, GuestRun, several_hosts
from slurm_relay import assert_kept_once

from syncd.store import Shared

pytestmark = pytest.mark.long

TOTAL = 400
#: On the login node: a published policy, an sshd, and a syncd for it to start.
SERVE = rf"""
cp -a /mnt/shared {HOME}; mkdir -p /run/sshd ~/.ssh
printf '#!/bin/sh\nPYTHONPATH=/checkout:{SITE} exec python3 -m syncd "$@"\n' >/opt/syncd; chmod +x /opt/syncd
exec /usr/sbin/sshd -o StrictModes=no
"""


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    with several_hosts(tmp_path_factory.mktemp("guest")) as up:
        yield up


def finished(slots: list[dict[str, object]]) -> bool:
    return all(slot["state"] == "finished" for slot in slots)


def test_hand_overs_between_two_clients_of_nfs(guest: Guest) -> None:
    """Jobs of some ten seconds: shorter than the time for which a client may not see what another one wrote. The clock
    of one node is five minutes ahead.
    """
    ahead = 'case "$(hostname)" in n2) export LD_PRELOAD=/usr/$LIB/faketime/libfaketime.so.1 FAKETIME=+300s;; esac'
    slurm = {"time_limit": "30", "mem": "100M", "cpus_per_task": 1, "gpus": 0, "setup": [ahead]}
    run = GuestRun(guest, "short", TOTAL, slots=2, slurm=slurm, training={"max_runtime_seconds": 8})
    run.orchestrator("doctor")
    run.orchestrator("start", "--via", "daemon")
    run.wait_for(finished, "both slots to finish")

    slots = run.slots()
    kept = run.kept()
    for slot in (0, 1):
        kept.assert_exactly_once(TOTAL, slot)
        assert slots[slot]["failures"] == 0, slots[slot]
        assert len(kept.attempts(slot)) > 1


def test_a_node_loses_the_network_while_its_job_works(guest: Guest) -> None:
    run = GuestRun(guest, "cut", TOTAL)
    run.hold_at(30)
    run.orchestrator("start", "--via", "daemon")
    run.wait_for(lambda slots: slots[0]["step"] == 30, "the job to count")
    node = guest.ask("login", "squeue", "-ho", "%N").strip()

    guest.cut(node)
    run.wait_for(lambda slots: (slots[0]["attempt"], slots[0]["step"]) == (1, 30), "the next attempt elsewhere")
    assert guest.ask("login", "squeue", "-ho", "%N").split() == [{"n1": "n2", "n2": "n1"}[node]]
    said = f"{run.folder}/runs/toy/slots/0/attempts/0/exit.json"
    assert guest.run("login", "test", "-e", said).returncode == 1  # nobody can know whether the first one lives on
    guest.cut(node, cut=False)
    guest.wait_for(lambda: programs(guest) == 1, "the end of the program that was cut off")
    run.release()
    run.wait_for(finished, "the slot to finish")

    assert run.slots()[0]["failures"] == 0
    assert assert_kept_once(run.kept(), TOTAL) == [1]


def programs(guest: Guest) -> int:
    """How many of the counting program run, on all hosts."""
    return int(guest.run("server", "pgrep", "-c", "-f", r"^python3 \./count\.py").stdout)


def test_slurmctld_dies_while_a_job_hands_over(guest: Guest) -> None:
    run = GuestRun(guest, "blind", TOTAL)
    run.hold_at(30)
    run.orchestrator("start", "--via", "daemon")
    run.wait_for(lambda slots: slots[0]["step"] == 30, "the job to count")

    guest.ask("server", "pkill", "-KILL", "-x", "slurmctld")
    guest.ask("login", "sh", "-c", "for job in jobs/*; do touch $job/hand-over; done", folder=f"{run.folder}/runs/toy")
    guest.wait_for(lambda: programs(guest) == 0, "the job's end")
    run.wait_for(lambda slots: slots[0]["checkpoint_step"] == 30, "the controller to see it")
    run.release()
    guest.ask("login", "slurmctld")
    run.wait_for(finished, "the slot to finish")

    assert run.slots()[0]["failures"] == 0
    run.kept().assert_exactly_once(TOTAL)


def test_a_laptop_behind_a_router_that_translates_addresses(guest: Guest) -> None:
    shared, syncd = guest.out / "shared", ("python3", "-m", "syncd")
    (shared / "v1").mkdir(parents=True)
    publish_one(Shared(shared), 1, 1)
    guest.ask("login", "sh", "-euc", SERVE)
    key = guest.ask("laptop", "sh", "-euc", "ssh-keygen -qt ed25519 -N '' -f ~/.ssh/id_ed25519; cat ~/.ssh/*.pub")
    guest.ask("login", "sh", "-euc", f"echo '{key.strip()}' >~/.ssh/authorized_keys")
    host_key = guest.ask("login", "ssh-keygen", "-lf", "/etc/ssh/ssh_host_ed25519_key").split()[1]
    assert "unreachable" in guest.run("login", "ip", "route", "get", LAPTOP).stderr

    known = ["--yes-host-key", host_key, "--remote-command", "/opt/syncd", "--name", "anna"]
    guest.ask("laptop", *syncd, "setup", *known, f"root@{HOSTS['login']}:{HOME}/shared")
    guest.ask("laptop", *syncd, "pull")
    mirrored = guest.ask("laptop", "sh", "-c", "cd ~/shared_weights && find v1 -type f -exec md5sum {} +").split()
    for digest, file in zip(mirrored[::2], mirrored[1::2], strict=True):
        assert hashlib.md5((shared / file).read_bytes()).hexdigest() == digest, file
    assert any("/blobs/" in name for name in mirrored), mirrored

    offer = f"from syncd.outbox import Outbox; Outbox(Path.home() / 'shared_weights').offer('{RUN}', 0, b'segment')"
    guest.ask("laptop", "python3", "-c", f"from pathlib import Path; {offer}")
    guest.ask("laptop", *syncd, "push")
    arrived = guest.ask("login", "find", f"{HOME}/shared", "-path", f"*anna*/new/{RUN}/0/*")
    assert len(arrived.split()) == 1, arrived
