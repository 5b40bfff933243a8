"""A contributor with a restricted key, her laptop, and the shared folder of which she may see a part.

The folder is an ordinary account's, at which she logs in: root may do what a folder's mode forbids, and hides faults.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from accounts import Account
from as_user import as_account
from daemons import PATIENCE_S
from policies import RUN, publish_one
from sshd import Laptop, Sshd

from syncd.access.gate import authorized_keys_line
from syncd.remote import Remote
from syncd.store import Manifest, Shared

SYNCD = str(Path(sys.executable).parent / "syncd")
SECRET = "the owner's own line"


@dataclass
class Friend:
    """`alice`, with her laptop, and the folder of which she may see a part."""

    server: Sshd
    laptop: Laptop
    shared: Shared
    manifest: Manifest
    here: Path
    #: Whose folder it is; None: the current user's.
    owner: Account | None = None

    @property
    def inbox(self) -> Path:
        return self.shared.path / "v1" / "inbox" / "alice"

    def allow(self, *, checkpoints: bool = False, also: str = "", before: str = "") -> None:
        """Let her in, and nobody else. `also`: a second key of hers; `before`: what the shell does before the gate."""
        syncd, shared = str(self.owner.syncd()) if self.owner else SYNCD, str(self.shared.path)
        keys = [self.laptop.public_key, *([also] if also else [])]
        lines = (authorized_keys_line("alice", key, [syncd], shared, checkpoints=checkpoints) for key in keys)
        text = "".join(line.replace('command="', f'command="{before}') + "\n" for line in lines)
        self.server.authorized_keys.write_text(text, encoding="utf-8")

    def as_owner(self, work: Callable[[], object]) -> None:
        """Call `work` in a process of the folder's owner."""
        if self.owner is None:
            work()
        else:
            as_account(self.owner.uid, self.owner.uid, (), work)

    def run(self, *words: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [str(word) for word in words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
            env={**self.laptop.env(), **(env or {})},
            cwd=self.here,
        )

    def ssh(self, *words: object) -> subprocess.CompletedProcess[bytes]:
        return self.run("ssh", "-F", self.laptop.config, *words)

    def rsync(self, *words: object) -> subprocess.CompletedProcess[bytes]:
        return self.run("rsync", "-e", f"ssh -F {self.laptop.config}", *words)

    def segment(self, seed: int = 1, *, top: str = "out", size: int = 5_000) -> Path:
        """A file in `<here>/<top>/<run>/<slot>/`, called as its content."""
        data = random.Random(seed).randbytes(size)
        folder = self.here / top / RUN / "0"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / hashlib.sha256(data).hexdigest()
        path.write_bytes(data)
        return path

    def files(self) -> dict[str, bytes]:
        """Everything below the shared folder."""
        root = self.shared.path
        return {
            str(path.relative_to(root)): path.read_bytes() if path.is_file() and not path.is_symlink() else b"-"
            for path in root.rglob("*")
        }

    def remote(self) -> Remote:
        """As her laptop's syncd has it."""
        return self.server.remote(self.laptop, self.shared.path, command=None)


def a_friend(sshd: Sshd, folder: Path, owner: Account | None) -> Friend:
    """`alice` may come to `sshd` with a key of her own; there is one policy. `owner`: whose the folder is.

    The folder is below `folder`, or below the owner's home, and goes with it.
    """
    shared = Shared((owner.home if owner else folder) / "run" / "shared")
    manifest = publish_one(shared, 1, 1)
    (shared.path.parent / "secret").write_text(SECRET + "\n")
    (shared.path / "v1" / "inbox" / "bob" / "verdicts").mkdir(parents=True)
    (shared.path / "v1" / "inbox" / "bob" / "verdicts" / "x.json").write_text(SECRET)
    laptop = sshd.new_client("alice", options=None)
    if owner:
        for path in (shared.path.parent, *shared.path.parent.rglob("*")):
            os.chown(path, owner.uid, pwd.getpwuid(owner.uid).pw_gid, follow_symlinks=False)
    here = folder / "here"
    here.mkdir()
    friend = Friend(sshd, laptop, shared, manifest, here, owner)
    friend.allow()
    return friend
