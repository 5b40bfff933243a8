"""A stepper's shared library: compiled when it is first needed, kept in the user's cache, never taken from others.

A library's file name holds the digest of its content, so a damaged one is seen before it is loaded, and processes that
build at the same time disturb nobody. The folder's name holds the digest of what it is made from, except the compiler:
a node without one uses what another node has built, and the check of every processor type (`verdicts.py`) judges that.
"""

from __future__ import annotations

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from anchorleg.places import own_folder
from trainer.envs.suite import StepperUnavailableError

#: Headers for all steppers.
SHARED = Path(__file__).parent
#: No contraction and no `pow` of the compiler's own: each changes last bits.
FLAGS = ("-O2", "-std=gnu11", "-ffp-contract=off", "-fno-fast-math", "-fno-builtin-pow", "-shared", "-fPIC")
#: A second on an idle machine.
_COMPILE_TIMEOUT_S = 120.0
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Library:
    """A loaded library: where it lies, and the digest of its content."""

    path: Path
    digest: str


def default_folder(sources: Path) -> Path:
    """Where this version's libraries of `sources` are kept: `$XDG_CACHE_HOME/anchorleg/native-…`.

    Errors: StepperUnavailableError where there is no home folder.
    """
    try:
        cache = own_folder("cache")
    except RuntimeError as error:  # a container's user whom its system does not know
        raise StepperUnavailableError(f"{error} Set HOME or XDG_CACHE_HOME") from error
    return cache / f"native-{_recipe(sources)[:16]}"


def find_or_build(sources: Path, folder: Path) -> Library:
    """A library of `sources` (a folder with a stepper.c) that loads here, from `folder` or new.

    Errors: StepperUnavailableError.
    """
    try:
        _make_private(folder)
        for path in sorted(folder.glob("stepper-*.so")):
            library = _genuine(path)
            if library is None:
                _log.warning("%s is damaged and is built again", path)
                path.unlink(missing_ok=True)
            elif _loads(path):
                return library
        return _build(sources, folder)
    except OSError as error:
        raise StepperUnavailableError(f"{folder} cannot be used: {error}") from error


def mujoco_folder() -> Path:
    """Where the `mujoco` package lies; found without importing it. Errors: StepperUnavailableError."""
    spec = find_spec("mujoco")
    if spec is None or not spec.submodule_search_locations:
        raise StepperUnavailableError("mujoco is not installed")
    return Path(spec.submodule_search_locations[0])


def mujoco_library() -> Path:
    """The simulator's own shared library. Errors: StepperUnavailableError."""
    found = [path for pattern in ("libmujoco.so*", "libmujoco*.dylib") for path in mujoco_folder().glob(pattern)]
    if len(found) != 1:
        raise StepperUnavailableError(f"{len(found)} libraries of MuJoCo in {mujoco_folder()}, expected one")
    return found[0]


def _recipe(sources: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted([*sources.glob("*.c"), *sources.glob("*.h"), *SHARED.glob("*.h")]):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    digest.update(f"{FLAGS} {platform.system()} {platform.machine()} {version('mujoco')}".encode())
    return digest.hexdigest()


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _ours(folder.lstat()):
        raise StepperUnavailableError(f"{folder} belongs to another user, or others may write to it; remove it")


def _ours(found: os.stat_result) -> bool:
    kind = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
    return kind and found.st_uid == os.getuid() and not found.st_mode & _OTHERS_MAY_WRITE


def _genuine(path: Path) -> Library | None:
    try:
        if not _ours(path.lstat()):
            return None
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except FileNotFoundError:  # another process has removed a damaged one meanwhile
        return None
    return Library(path, digest) if path.name == f"stepper-{digest}.so" else None


def _loads(path: Path) -> bool:
    try:
        ctypes.CDLL(str(path))
    except OSError as error:  # built on a node with a newer C library
        _log.info("%s does not load here: %s", path, error)
        return False
    return True


def _build(sources: Path, folder: Path) -> Library:
    with tempfile.TemporaryDirectory(prefix="building-", dir=folder) as name:
        output = Path(name) / "stepper.so"
        _compile(sources / "stepper.c", output)
        with open(output, "rb") as made:
            digest = hashlib.sha256(made.read()).hexdigest()[:16]
            os.fsync(made.fileno())
        os.chmod(output, 0o700)
        path = folder / f"stepper-{digest}.so"
        # One that another process has built meanwhile stays: on a network folder a job elsewhere that runs it would
        # lose its pages, and be killed by SIGBUS.
        if not path.exists():
            os.replace(output, path)
    if not _loads(path):
        raise StepperUnavailableError(f"{path} was built and does not load")
    return Library(path, digest)


def _compile(source: Path, output: Path) -> None:
    try:
        compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError as error:
        raise StepperUnavailableError(f"CC={os.environ['CC']!r} is no command ({error})") from error
    include = ["-I", str(mujoco_folder() / "include"), "-I", str(SHARED)]
    command = [*compiler, *FLAGS, *include, str(source), "-o", str(output), "-lm", "-lpthread"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=_COMPILE_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StepperUnavailableError(f"the C compiler {compiler[0]!r} cannot be run: {error}") from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or [f"status {done.returncode}"]
        cause = next((line for line in lines if "error" in line), lines[-1])  # gcc's last line is "terminated."
        raise StepperUnavailableError(f"{compiler[0]} cannot compile the stepper: {cause}")
