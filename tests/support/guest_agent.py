"""The first process of a guest kernel (several_hosts.py): an NFS server, hosts in network namespaces, Slurm on them.

It makes the hosts, and then runs what the test's side asks for: a line of JSON on the console for each command, and
one with the answer behind `MARK`. At the end of its input it switches the guest off. Standard library only: this is
the guest's own Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tty
from pathlib import Path
from typing import Any

MARK = "\x02answer "
SERVER = "10.9.0.1"
#: Each has its own mount of the server's folder as /home.
HOSTS = {"login": "10.9.0.2", "n1": "10.9.0.3", "n2": "10.9.0.4"}
#: Behind a router that translates addresses: it reaches the others, and none of them reaches it.
LAPTOP = "10.8.0.2"
SLURM_CONF = """\
ClusterName=guest
SlurmctldHost=login(10.9.0.2)
AuthType=auth/munge
AuthInfo=socket=/run/munge.socket
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/var/spool/slurm/state
SlurmdSpoolDir=/var/spool/slurm/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.%n.pid
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_interval=1
SlurmdTimeout=20
ReturnToService=2
MailProg=/bin/true
KillWait=15
NodeName=n1 NodeHostname=n1 NodeAddr=10.9.0.3 CPUs=4 RealMemory=4000
NodeName=n2 NodeHostname=n2 NodeAddr=10.9.0.4 CPUs=4 RealMemory=4000
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE DefaultTime=10 State=UP
"""


def sh(script: str) -> None:
    """Run a part of the set-up. Errors: CalledProcessError."""
    subprocess.run(["sh", "-euc", script], check=True, stdin=subprocess.DEVNULL)


def start_server(folder: str) -> None:
    """Mounts, a bridge, and an NFS server of `/srv`."""
    sh("""
    mount -t sysfs sys /sys; mount -t cgroup2 cgroup2 /sys/fs/cgroup; mkdir -p /dev/pts /dev/shm
    mount -t devpts devpts /dev/pts
    mount -t tmpfs -o size=8g tmpfs /srv  # the claim of a file server, not the guest's memory
    for at in /dev/shm /run /tmp /etc/slurm /var/log /var/spool /root; do mount -t tmpfs tmpfs $at; done
    mkdir /run/var-lib; cp -a /var/lib/nfs /run/var-lib/; mount --bind /run/var-lib/nfs /var/lib/nfs
    cp -a /etc /run/etc; mount --bind /run/etc /etc; mount -t tmpfs tmpfs /etc/slurm
    chmod 1777 /tmp /dev/shm; ip link set lo up; hostname server
    ip link add br0 type bridge; ip addr add 10.9.0.1/24 dev br0; ip link set br0 up
    modprobe nfsd; modprobe nfs; modprobe nfsv4
    mkdir -p /srv/home /run/rpcbind /var/lib/nfs/rpc_pipefs /var/lib/nfs/v4recovery /run/munge /run/sshd
    touch /var/lib/nfs/etab /var/lib/nfs/rmtab
    mount -t nfsd nfsd /proc/fs/nfsd; mount -t rpc_pipefs sunrpc /var/lib/nfs/rpc_pipefs
    echo '/srv *(rw,sync,no_root_squash,no_subtree_check,fsid=0,insecure)' >/etc/exports
    rpcbind -w; exportfs -r
    for each in lease grace; do echo 10 >/proc/fs/nfsd/nfsv4${each}time; done  # 90 s: nothing is opened in the grace
    rpc.nfsd -N 3 -V 4 4; rpc.mountd -N 3
    """)
    names = "".join(f"{address} {name}\n" for name, address in {"server": SERVER, **HOSTS}.items())
    Path("/etc/hosts").write_text(f"127.0.0.1 localhost\n{names}")


def start_host(name: str, address: str, bridge: str, mount: str = "true") -> subprocess.Popen[bytes]:
    """A host is what one sleeping process lives in: a network, a name and mounts of its own."""
    sh(f"""
    ip netns add {name}; ip link add v{name} type veth peer name eth0 netns {name}
    ip link set v{name} master {bridge} up; ip -n {name} addr add {address}/24 dev eth0
    ip -n {name} link set eth0 up; ip -n {name} link set lo up; mkdir -p /run/local/{name}
    """)
    inside = (
        f"hostname {name}; mount --make-rprivate /; mount --bind /run/local/{name} /opt; mount -t tmpfs tmpfs /root; "
        f"until {mount}; do sleep 1; done; echo up; exec sleep infinity"
    )
    words = ["ip", "netns", "exec", name, "unshare", "-m", "-u", "sh", "-c", inside]
    host = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert host.stdout is not None
    host.stdout.readline()
    return host


def start_laptop() -> subprocess.Popen[bytes]:
    """It shares nothing with the cluster, whose hosts have no route to it."""
    sh("""
    ip link add br1 type bridge; ip addr add 10.8.0.1/24 dev br1; ip link set br1 up
    echo 1 >/proc/sys/net/ipv4/ip_forward
    tc qdisc add dev br0 clsact
    tc filter add dev br0 egress protocol ip prio 1 u32 match ip src 10.8.0.0/24 \\
        action ct commit nat src addr 10.9.0.1 pipe
    tc filter add dev br0 ingress protocol ip prio 1 matchall action ct nat pipe
    """)
    laptop = start_host("laptop", LAPTOP, "br1")
    sh("ip -n laptop route add default via 10.8.0.1")
    return laptop


def start_slurm(hosts: dict[str, subprocess.Popen[bytes]]) -> None:
    """munge, a controller on the login node, and a slurmd on each of the others."""
    Path("/etc/slurm/slurm.conf").write_text(SLURM_CONF)
    Path("/etc/slurm/cgroup.conf").write_text("CgroupPlugin=disabled\n")
    sh("""
    mkdir -p /var/spool/slurm/state; head -c 128 /dev/urandom >/run/munge.key; chmod 400 /run/munge.key
    munged --force --key-file=/run/munge.key --socket=/run/munge.socket --pid-file=/run/munge.pid \
        --log-file=/var/log/munged.log --seed-file=/run/munge.seed
    """)
    commands = {"login": "slurmctld", "n1": "slurmd -N n1", "n2": "slurmd -N n2"}
    for name, command in commands.items():
        words = ["sh", "-c", f"mkdir -p /var/spool/slurm/{name}; exec {command}"]
        answer(hosts, {"host": name, "words": words, "folder": "/", "env": {}, "timeout_s": 60})


def answer(hosts: dict[str, subprocess.Popen[bytes]], asked: dict[str, Any]) -> dict[str, Any]:
    """Run `words` on `host` in `folder`, for `timeout_s` at most."""
    inside = [] if asked["host"] == "server" else ["nsenter", "-t", str(hosts[asked["host"]].pid), "-m", "-u", "-n"]
    env = {"PATH": os.environ["PATH"], "HOME": "/root", "USER": "root", "LANG": "C.UTF-8", **asked["env"]}
    done = subprocess.run(
        ["timeout", "-k", "5", str(asked["timeout_s"]), *inside, "env", "-C", asked["folder"], *asked["words"]],
        env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    return {"code": done.returncode, "out": done.stdout, "err": done.stderr}


def main() -> None:
    """`guest_agent.py OPTIONS`: of the NFS mounts (nfs(5))."""
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    tty.setraw(0)
    start_server("/srv")
    mount = f"mount -t nfs -o {sys.argv[1]},nosharecache {SERVER}:/ /home"
    hosts = {name: start_host(name, address, "br0", mount) for name, address in HOSTS.items()}
    start_slurm(hosts)
    hosts["laptop"] = start_laptop()
    print(f"\n{MARK}{{}}", flush=True)
    with open(0) as console:
        for line in console:
            print(f"\n{MARK}{json.dumps(answer(hosts, json.loads(line)))}", flush=True)
    Path("/proc/sysrq-trigger").write_text("o")


if __name__ == "__main__":
    main()
