"""Builds `containers/Dockerfile` itself, with charliecloud's ch-image, on a base of Debian's packages.

Docker Hub is not needed: a root file system made by mmdebstrap is put into ch-image's storage under the name that FROM
asks for. It stands in for the official image in what matters: the same release of Debian, Python 3.11 with venv, root's
own apt. What differs: Python is Debian's, in /usr/bin. The base also gets this machine's settings of pip, so that a
build finds the same wheels as the tests' own environment did.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from daemons import LONG_S, PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "containers" / "Dockerfile"
TAG = "anchorleg:cpu"
#: Debian's Python: ch-image is a program for it, whatever comes first on the PATH.
PYTHON = "/usr/bin/python3"
#: Debian's packages, torch and all the rest over a slow line, on a busy machine.
BUILD_TIMEOUT_S = LONG_S


def missing_build_parts() -> list[str]:
    """What is not installed."""
    missing = [name for name in ("ch-image", "ch-convert", "ch-run", "mmdebstrap") if shutil.which(name) is None]
    if not missing and subprocess.run([PYTHON, "-c", "import lark, requests"], check=False).returncode:
        missing.append("python3-lark, python3-requests")
    return missing if os.geteuid() == 0 else [*missing, "root"]


def pip_settings() -> dict[str, str]:
    """What pip goes by on this machine, files and environment together: name → value."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    found = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition("=")
        found[name.removeprefix(":env:").rpartition(".")[2]] = str(ast.literal_eval(value))
    return found


def folder_of_cpu_wheels() -> str:
    """Where this machine's pip finds a torch for the CPU, empty where it was told of no such folder."""
    return next((word for word in pip_settings().get("find-links", "").split() if os.path.isdir(word)), "")


@dataclass(frozen=True)
class Builder:
    """`folder`: for the storage, the base and the image."""

    folder: Path

    def make_base(self) -> None:
        """Debian with Python, under the name that the Dockerfile asks for."""
        [name] = re.findall(r"^FROM (\S+)$", DOCKERFILE.read_text(), re.MULTILINE)
        release = name.rpartition("-")[2]
        base = self.folder / "base"
        packages = "--include=python3,python3-venv,ca-certificates"
        self._run(["mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", packages, release, f"{base}.tar"])
        base.mkdir()
        self._run(["tar", "-C", str(base), "--exclude=./dev/*", "-xf", f"{base}.tar"])
        # In a user namespace apt cannot become its own user.
        (base / "etc/apt/apt.conf.d/99root").write_text('APT::Sandbox::User "root";\n')
        settings = pip_settings()
        (base / "etc/pip.conf").write_text("[global]\n" + "".join(f"{key} = {settings[key]}\n" for key in settings))
        for file in (word for value in settings.values() for word in value.split() if os.path.isfile(word)):
            (base / file.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)  # certificates, constraints
            shutil.copy(file, base / file.lstrip("/"))
        for folder in self.folders():
            (base / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        self._run([PYTHON, shutil.which("ch-image") or "", "import", str(base), name])
        shutil.rmtree(base)

    def folders(self) -> list[str]:
        """Folders of this machine that pip was told of: they must be seen in the build, too."""
        words = [word.removeprefix("file://") for value in pip_settings().values() for word in value.split()]
        places = {
            str(Path(word).parent if word.endswith("/simple") else Path(word)) for word in words if word[0] == "/"
        }
        return sorted(place for place in places if os.path.isdir(place))

    def build(self) -> Path:
        """The Dockerfile's own steps; the image as a folder. Errors: AssertionError with the last words."""
        binds = [word for folder in self.folders() for word in ("--bind", folder)]
        args = ["--build-arg", "VARIANT=cpu", "--build-arg", f"WHEELS={folder_of_cpu_wheels()}"]
        ch_image = [PYTHON, shutil.which("ch-image") or ""]
        self._run([*ch_image, "build", "-t", TAG, *args, *binds, "-f", str(DOCKERFILE), str(ROOT)])
        image = self.folder / "image"
        self._run(["ch-convert", "-i", "ch-image", "-o", "dir", TAG, str(image)])
        shutil.rmtree(self.folder / "storage")
        return image

    def _run(self, command: Sequence[str]) -> None:
        done = self._asked(command)
        assert done.returncode == 0, f"{command[:3]}:\n{(done.stdout + done.stderr)[-4000:]}"

    def _asked(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        own = {"CH_IMAGE_STORAGE": str(self.folder / "storage"), "CH_IMAGE_CACHE": "disabled"}
        # Debian's Python must be its own, and pip's settings come from the file that every user of the image has.
        env = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
        env |= {**own, "USER": os.environ.get("USER") or "root", "PATH": f"/usr/bin:/bin:/usr/sbin:{env['PATH']}"}
        return subprocess.run(
            command, env=env, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_S, cwd=ROOT
        )


def throw_away_folder(folder: Path) -> None:
    """Some gigabytes, and folders of it cannot be written."""
    with contextlib.suppress(OSError):
        shutil.rmtree(folder)
