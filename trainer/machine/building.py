"""Shared libraries of C: compiled when first needed, kept in the user's cache, never taken from others.

A library's file name holds the digest of its content, so a damaged one is seen before it is loaded, and processes that
build at the same time disturb nobody. The folder's name holds the digest of what it is made from, with the flags in CC
and without the compiler: a node that has none uses what another node has built. One that cannot be used here, because
of the system, the processor or its numbers, is left for others. None is ever removed: on a network folder a job
elsewhere that runs it would lose its pages, and be killed by SIGBUS.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import logging
import os
import platform
import secrets
import shlex
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from anchorleg.errors import NamedError
from anchorleg.output import Waiting
from anchorleg.places import own_folder
from trainer.machine.processes import run_to_its_end

#: A part of every library.
_RUNS_HERE = Path(__file__).with_name("runs_here.c")
#: What compiles where CC names nothing, or nothing that is there.
_USUAL = ["cc"]
#: Another try would come to the same: no such place, no permission, a full disk, nothing that can be run.
_FOR_GOOD = frozenset(
    {
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.EINVAL, errno.ENAMETOOLONG),
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOEXEC, errno.ENOSYS),
        *(errno.ENOTSUP, errno.EOPNOTSUPP),
    }
)
#: More than any system's `fenv_t`.
_FENV_BYTES = 256
#: A second on an idle machine.
_COMPILE_TIMEOUT_S = 120.0
#: Older than any compiler's run: nobody works there.
_LEFT_S = 3600.0
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH

_log = logging.getLogger(__name__)


class NoLibraryError(NamedError):
    """A library cannot be had here, and why. It does not mean that its sources are wrong."""


class UnreadLibraryError(NoLibraryError):
    """Whether a library can be had here is not known now: storage failed, or the compiler took too long. It does not
    mean that another try would fail.
    """


@dataclass(frozen=True)
class Recipe:
    """What a library is made from: `<name>.c` in `sources`, whose C files and headers are its own, as are the headers
    in `shared`; the compiler's `flags`; headers of others in `foreign`, of which `versions` tells.

    `fault`: why one that loads may not be used; None: it may.
    """

    name: str
    sources: Path
    flags: tuple[str, ...]
    shared: tuple[Path, ...] = ()
    foreign: tuple[Path, ...] = ()
    versions: str = ""
    fault: Callable[[Library], str | None] = field(default=lambda _: None)

    @property
    def digest(self) -> str:
        """Of all of it, of the system and the kind of processor, and of what CC says beside the compiler's name."""
        digest = hashlib.sha256()
        headers = [path for folder in self.shared for path in folder.glob("*.h")]
        for path in [*sorted([*self.sources.glob("*.c"), *self.sources.glob("*.h"), *headers]), _RUNS_HERE]:
            digest.update(f"{path.name}\n".encode() + path.read_bytes())
        more = _compiler()[1:]  # CC="gcc -march=native" makes another library; without CC any will do
        digest.update(f"{self.flags} {more} {platform.system()} {platform.machine()} {self.versions}".encode())
        return digest.hexdigest()


@dataclass(frozen=True)
class Library:
    """A loaded library: where it lies, and the digest of its content."""

    path: Path
    digest: str


def cache_folder(recipe: Recipe, prefix: str) -> Path:
    """Where libraries of `recipe` are kept: `$XDG_CACHE_HOME/anchorleg/<prefix>-…`.

    Errors: NoLibraryError where CC is no command.
    """
    return own_folder("cache") / f"{prefix}-{recipe.digest[:16]}"


def find_or_build(recipe: Recipe, folder: Path) -> Library:
    """A library of `recipe` that can be used here, from `folder` or new.

    Errors: NoLibraryError; UnreadLibraryError where storage fails, or the compiler takes minutes.
    """
    try:
        return _found_or_built(recipe, folder)
    except OSError as error:
        if error.errno is None or error.errno in _FOR_GOOD:
            raise NoLibraryError("library.folder-unusable", folder=folder, why=error) from error
        raise UnreadLibraryError("library.folder-unread", folder=folder, why=error) from error


def _found_or_built(recipe: Recipe, folder: Path) -> Library:
    _make_private(folder)
    for path in sorted(folder.glob(f"{recipe.name}-*.so")):
        library = _genuine(path, recipe.name)
        if library is None:
            _log.warning("%s is damaged and is rebuilt", path)
            _set_aside(path)
        elif (fault := _fault(recipe, library)) is None:
            return library
        else:
            _log.info("%s is not used here: %s", path, fault)
    return _build(recipe, folder)


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise NoLibraryError("library.folder-of-another", folder=folder)
    if found.st_mode & _OTHERS_MAY_WRITE:
        raise NoLibraryError("library.folder-open", folder=folder)


def _genuine(path: Path, name: str) -> Library | None:
    """Of a file that is this user's, and that nobody else may write to; None: it is not, or is damaged or gone."""
    try:
        found = path.lstat()
        is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid()
        digest = _digest(path) if is_ours and not found.st_mode & _OTHERS_MAY_WRITE else ""
    except FileNotFoundError:  # another process has set a damaged one aside meanwhile
        return None
    return Library(path, digest) if path.name == _file_name(name, digest) else None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _file_name(name: str, digest: str) -> str:
    return f"{name}-{digest}.so"


def _set_aside(path: Path) -> None:
    """Give a damaged library another name: a process may run it. Another process may have been first."""
    with contextlib.suppress(FileNotFoundError):
        path.rename(path.with_name(f"damaged-{secrets.token_hex(8)}"))


def _put(made: Path, path: Path) -> None:
    """`made` also at `path`, where nothing is yet: what another process has built meanwhile stays."""
    try:
        with contextlib.suppress(FileExistsError):
            os.link(made, path)
    except OSError:  # a file system without links
        if not path.exists():
            os.replace(made, path)


def _fault(recipe: Recipe, library: Library) -> str | None:
    """Why a library is not to be used here; None: it is."""
    try:
        loaded = _loaded(library.path)
    except OSError as error:  # built on a node with a newer C library
        return f"it does not load ({error})"
    if not loaded.runs_here():
        return "it was built for a processor with more instructions"
    return recipe.fault(library)


def _loaded(path: Path) -> ctypes.CDLL:
    """The library. This thread computes as before: one that is linked for fast mathematics would have it take the
    smallest numbers for zero. Errors: OSError.
    """
    program, before = ctypes.CDLL(None), ctypes.create_string_buffer(_FENV_BYTES)
    program.fegetenv(before)
    try:
        return ctypes.CDLL(str(path))
    finally:
        program.fesetenv(before)


def _build(recipe: Recipe, folder: Path) -> Library:
    for left in folder.glob("building-*"):  # by a compiler's process that was killed
        with contextlib.suppress(FileNotFoundError):  # another process removes it, or has ended there
            if time.time() - left.stat().st_mtime > _LEFT_S:
                shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=folder) as name:
        output = Path(name) / f"{recipe.name}.so"
        _compile(recipe, output, _compiler())
        with open(output, "rb") as made:
            os.fsync(made.fileno())
        os.chmod(output, 0o700)
        digest = _digest(output)
        library = Library(folder / _file_name(recipe.name, digest), digest)
        _put(output, library.path)
    if (fault := _fault(recipe, library)) is not None:
        raise NoLibraryError("library.unusable", path=library.path, why=fault)
    return library


def _compiler() -> list[str]:
    try:
        return shlex.split(os.environ.get("CC", "")) or _USUAL
    except ValueError as error:
        raise NoLibraryError("library.no-compiler", compiler=os.environ["CC"], why=error) from error


def _compile(recipe: Recipe, output: Path, compiler: list[str]) -> None:
    include = [word for folder in (*recipe.foreign, *recipe.shared) for word in ("-I", str(folder))]
    sources = [str(recipe.sources / f"{recipe.name}.c"), str(_RUNS_HERE)]
    command = [*compiler, *recipe.flags, *include, *sources, "-o", str(output), "-lm", "-lpthread"]
    try:
        with Waiting(f"compiling {recipe.name}, once"):
            status, _, errors = run_to_its_end(command, _COMPILE_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise UnreadLibraryError(
            "library.compiler-slow", compiler=compiler[0], library=recipe.name, seconds=_COMPILE_TIMEOUT_S
        ) from error
    except OSError as error:
        if error.errno not in _FOR_GOOD:  # no more processes, say
            raise
        if len(compiler) > 1 or compiler == _USUAL:
            raise NoLibraryError("library.compiler-not-run", compiler=compiler[0], why=error) from error
        # As in a container, which has CC from its host. Flags would be lost by that.
        _log.warning("the C compiler in CC cannot be run (%s): using %s", error, _USUAL[0])
        _compile(recipe, output, _USUAL)
        return
    if status:
        lines = errors.decode(errors="replace").strip().splitlines() or [f"status {status}"]
        cause = next((line for line in lines if "error" in line), lines[-1])  # gcc's last line is "terminated."
        raise NoLibraryError("library.not-compiled", compiler=compiler[0], library=recipe.name, why=cause)
