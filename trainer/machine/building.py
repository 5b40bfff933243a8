"""Shared libraries of C: compiled when first needed, kept in the user's cache, never taken from others.

A library's file name holds the digest of its content, so a damaged one is seen before it is loaded, and processes that
build at the same time disturb nobody. The folder's name holds the digest of what it is made from, with the flags in CC
and without the compiler: a node that has none uses what another node has built.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from anchorleg.places import own_folder
from trainer.machine.processor import processor
from trainer.machine.signals import run_to_its_end

#: A second on an idle machine.
_COMPILE_TIMEOUT_S = 120.0
#: Older than any compiler's run: nobody works there.
_LEFT_S = 3600.0
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

_log = logging.getLogger(__name__)


class NoLibraryError(Exception):
    """A library cannot be had here, and why. It does not mean that its sources are wrong."""


@dataclass(frozen=True)
class Recipe:
    """What a library is made from: `<name>.c` in `sources`, whose C files and headers are its own, as are the headers
    in `shared`; the compiler's `flags`; headers of others in `foreign`, of which `versions` tells.
    """

    name: str
    sources: Path
    flags: tuple[str, ...]
    shared: tuple[Path, ...] = ()
    foreign: tuple[Path, ...] = ()
    versions: str = ""

    @property
    def digest(self) -> str:
        """Of all of it, of the system and the kind of processor, and of what CC says beside the compiler's name."""
        digest = hashlib.sha256()
        headers = [path for folder in self.shared for path in folder.glob("*.h")]
        for path in sorted([*self.sources.glob("*.c"), *self.sources.glob("*.h"), *headers]):
            digest.update(f"{path.name}\n".encode() + path.read_bytes())
        more = _compiler()[1:]  # CC="gcc -march=native" makes another library; without CC any will do
        on = processor() if any("native" in word for word in more) else ""
        digest.update(f"{self.flags} {more} {on} {platform.system()} {platform.machine()} {self.versions}".encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Library:
    """A loaded library: where it lies, and the digest of its content."""

    path: Path
    digest: str


def cache_folder(recipe: Recipe, prefix: str) -> Path:
    """Where libraries of `recipe` are kept: `$XDG_CACHE_HOME/anchorleg/<prefix>-…`.

    Errors: NoLibraryError where there is no home folder, or CC is no command.
    """
    try:
        cache = own_folder("cache")
    except RuntimeError as error:  # a container's user whom its system does not know
        raise NoLibraryError(f"{error} Set HOME or XDG_CACHE_HOME") from error
    return cache / f"{prefix}-{recipe.digest[:16]}"


def find_or_build(recipe: Recipe, folder: Path) -> Library:
    """A library of `recipe` that loads here, from `folder` or new. Errors: NoLibraryError."""
    try:
        _make_private(folder)
        for path in sorted(folder.glob(f"{recipe.name}-*.so")):
            library = _genuine(path, recipe.name)
            if library is None:
                _log.warning("%s is damaged and is built again", path)
                path.unlink(missing_ok=True)
            elif _loads(path):
                return library
        return _build(recipe, folder)
    except OSError as error:
        raise NoLibraryError(f"{folder} cannot be used: {error}") from error


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _ours(folder.lstat()):
        raise NoLibraryError(f"{folder} belongs to another user, or others may write to it; remove it")


def _ours(found: os.stat_result) -> bool:
    kind = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
    return kind and found.st_uid == os.getuid() and not found.st_mode & _OTHERS_MAY_WRITE


def _genuine(path: Path, name: str) -> Library | None:
    try:
        if not _ours(path.lstat()):
            return None
        digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except FileNotFoundError:  # another process has removed a damaged one meanwhile
        return None
    return Library(path, digest) if path.name == f"{name}-{digest}.so" else None


def _loads(path: Path) -> bool:
    try:
        ctypes.CDLL(str(path))
    except OSError as error:  # built on a node with a newer C library
        _log.info("%s does not load here: %s", path, error)
        return False
    return True


def _build(recipe: Recipe, folder: Path) -> Library:
    for left in folder.glob("building-*"):  # by a compiler's process that was killed
        with contextlib.suppress(FileNotFoundError):  # another process removes it, or has ended there
            if time.time() - left.stat().st_mtime > _LEFT_S:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=folder) as name:
        output = Path(name) / f"{recipe.name}.so"
        _compile(recipe, output)
        with open(output, "rb") as made:
            digest = hashlib.sha256(made.read()).hexdigest()[:16]
            os.fsync(made.fileno())
        os.chmod(output, 0o700)
        path = folder / f"{recipe.name}-{digest}.so"
        # One that another process has built meanwhile stays: on a network folder a job elsewhere that runs it would
        # lose its pages, and be killed by SIGBUS.
        try:
            with contextlib.suppress(FileExistsError):
                os.link(output, path)
        except OSError:  # a file system without links
            if not path.exists():
                os.replace(output, path)
    if not _loads(path):
        raise NoLibraryError(f"{path} was built and does not load")
    return Library(path, digest)


def _compiler() -> list[str]:
    try:
        return shlex.split(os.environ.get("CC", "")) or ["cc"]
    except ValueError as error:
        raise NoLibraryError(f"CC={os.environ['CC']!r} is no command ({error})") from error


def _compile(recipe: Recipe, output: Path) -> None:
    compiler = _compiler()
    include = [word for folder in (*recipe.foreign, *recipe.shared) for word in ("-I", str(folder))]
    source = recipe.sources / f"{recipe.name}.c"
    command = [*compiler, *recipe.flags, *include, str(source), "-o", str(output), "-lm", "-lpthread"]
    try:
        status, _, errors = run_to_its_end(command, _COMPILE_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoLibraryError(f"the C compiler {compiler[0]!r} cannot be run: {error}") from error
    if status:
        lines = errors.decode(errors="replace").strip().splitlines() or [f"status {status}"]
        cause = next((line for line in lines if "error" in line), lines[-1])  # gcc's last line is "terminated."
        raise NoLibraryError(f"{compiler[0]} cannot compile the {recipe.name}: {cause}")
