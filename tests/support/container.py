"""A minimal container image with this machine's Python in it, and charliecloud's `ch-run` to enter it.

The image is a folder of mount points; `/usr` and the interpreter's prefix are bound into it. Tried with ch-run 0.31
(Debian 12), as root and as an ordinary user, without any set-up beyond user namespaces. What ch-run wants:

* `$USER` set, and `etc/passwd` and `etc/group` in the image: it mounts its own over them;
* every bind's target exists in the image, or `--write` (which creates it; the image must then be writable);
* it mounts the host's `$TMPDIR`, or else `/tmp`, at `/tmp`, and a bind's target below it must exist there: so it is
  run without TMPDIR, which is set again inside;
* it replaces itself by the command: same pid, signals arrive, the exit code comes back, ignored signals stay so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from daemons import PATIENCE_S
from needs import need

_FOLDERS = ("dev", "etc", "home", "mnt", "opt", "proc", "root", "run", "srv", "sys", "tmp", "usr", "var/tmp")
_LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}


def missing_container_parts() -> list[str]:
    """What is not installed."""
    return [name for name in ("ch-run",) if shutil.which(name) is None]


@dataclass(frozen=True)
class Container:
    """`image`: the folder. `binds`: what the image needs to work at all. `python`: the interpreter inside."""

    image: Path
    binds: tuple[str, ...]
    python: str

    @classmethod
    def make(cls, image: Path) -> Container:
        """Fill the folder `image`. Skips the test where the kernel does not let this account enter it."""
        for name in _FOLDERS:
            (image / name).mkdir(parents=True, exist_ok=True)
        for name, target in _LINKS.items():
            (image / name).symlink_to(target)
        for name in ("passwd", "group", "hosts", "resolv.conf"):
            (image / "etc" / name).touch()
        if Path("/etc/ld.so.cache").exists():
            shutil.copy("/etc/ld.so.cache", image / "etc" / "ld.so.cache")
        prefix = Path(sys.base_prefix).resolve()
        binds = ("/usr",) if prefix.is_relative_to("/usr") else ("/usr", str(prefix))
        made = cls(image, binds, f"{prefix}/bin/python{sys.version_info.major}.{sys.version_info.minor}")
        for bind in binds:
            (image / bind.lstrip("/")).mkdir(parents=True, exist_ok=True)
        probe = made.run([made.python, "-c", "import json"])
        need("a container that may be entered", [] if probe.returncode == 0 else [probe.stderr.strip()])
        return made

    def command_line(
        self, command: Sequence[str], *, binds: Sequence[str] = (), cwd: str = "/", env: Mapping[str, str] | None = None
    ) -> list[str]:
        """The ch-run that runs `command` in `cwd`, with the host's environment and `env` on top."""
        return [
            "env", "-u", "TMPDIR",
            "ch-run", "--write",
            *(f"--bind={bind}" for bind in (*self.binds, *binds)),
            f"--cd={cwd}",
            "--env-no-expand",
            *(f"--set-env={name}={value}" for name, value in (env or {}).items()),
            str(self.image), "--", *command,
        ]  # fmt: skip

    def run(
        self,
        command: Sequence[str],
        *,
        binds: Sequence[str] = (),
        cwd: str = "/",
        env: Mapping[str, str] | None = None,
        timeout_s: float = PATIENCE_S,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside and wait for it."""
        return subprocess.run(
            self.command_line(command, binds=binds, cwd=cwd, env=env),
            env=host_env(),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )


def host_env() -> dict[str, str]:
    """This process's environment with the USER that ch-run insists on."""
    return {**os.environ, "USER": os.environ.get("USER") or "user"}
