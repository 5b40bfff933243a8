"""Another Debian in a folder: its Slurm, its Python, its kernel. Made once for a checkout, entered by namespaces."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from daemons import LONG_S, alone
from needs import need

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements" / "base.lock"
#: Slurm, what the tests start beside it, and what this machine's Python is linked with.
SLURM = (
    "slurmctld,slurmd,slurm-client,munge,procps,cron,git,"
    "libssl3t64,libffi8,libsqlite3-0,libreadline8t64,libbz2-1.0"
)  # fmt: skip
#: A guest kernel and its hosts, with a Python of their own.
GUEST = "user-mode-linux,kmod,nfs-kernel-server,nfs-common,rpcbind,iproute2,faketime,python3,openssh-server,rsync"
GUEST_PYTHON = "3.13"
#: Where the base install of the root's own Python lies.
SITE = "/site"
#: A folder of this machine under another name inside, and what runs there. With the last process all ends.
_ENTER = """
root=$1; shift
for each in proc sys dev dev/pts; do mount --bind "/$each" "$root/$each"; done
mount -t tmpfs tmpfs "$root/run"; mount -t tmpfs tmpfs "$root/tmp"
while [ "$1" != -- ]; do mkdir -p "$root$2"; mount --bind "$1" "$root$2"; shift 2; done; shift
chroot "$root" env -i HOME=/tmp "$@"; exit $?
"""


def debian_root(suite: str = "trixie", packages: str = f"{SLURM},{GUEST}") -> Path:
    """The root folder; the first time it takes two minutes and the network. Skips the test where it cannot be made."""
    missing = [name for name in ("mmdebstrap", "unshare", "chroot") if shutil.which(name) is None]
    need("a second Debian", missing if os.geteuid() == 0 else [*missing, "root"])
    digest = hashlib.sha256(f"{GUEST_PYTHON} {packages}".encode() + LOCK.read_bytes()).hexdigest()[:12]
    root = ROOT / "build" / f"{suite}-{digest}"
    with alone(root.name):
        if not root.exists():
            _make(root, suite, packages)
    return root


def _make(root: Path, suite: str, packages: str) -> None:
    new = root.with_name(f"{root.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.parent.mkdir(exist_ok=True)
    paths = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "locale", "man")]
    # A mirror may be older than its lists say that they are good for.
    apt = ['--aptopt=Acquire::Languages "none"', '--aptopt=Acquire::Check-Valid-Until "false"']
    options = [*paths, *apt, "--dpkgopt=force-unsafe-io", f"--include={packages}"]
    run = ["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", *options, suite, str(new)]
    subprocess.run(run, check=True, timeout=LONG_S)
    shutil.copy("/etc/hosts", new / "etc")  # else slurmctld cannot resolve its host
    if GUEST in packages:
        (new / "usr/lib/modules").symlink_to("uml/modules")
        wheels = ["--only-binary=:all:", "--python-version", GUEST_PYTHON, "--target", f"{new}{SITE}"]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", *wheels, "-r", str(LOCK)]
        subprocess.run(pip, check=True, timeout=LONG_S)
    new.rename(root)


def entering(root: Path, folders: dict[Path, str], words: Sequence[str]) -> list[str]:
    """The command that runs `words` (`NAME=VALUE …` first) in there, in PID and mount namespaces of its own, where
    this machine's `folders` are seen by the names given.
    """
    shell = ["bash", "-euc", _ENTER, "enter", str(root)]
    binds = [word for folder, inside in folders.items() for word in (str(folder), inside)]
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *shell, *binds, "--", *words]
