"""The run's copy of the user's own code (`code.snapshot`), named by its content, beside the copy of ours.

Jobs start in it: an edit in the working tree reaches none of them before `start --renew-code`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from anchorleg.files import make_folder, publish_folder, write_bytes
from anchorleg.places import user_path
from anchorleg.words import counted, sized
from orchestrator.config import RunConfig
from orchestrator.disk import PRIVATE, PRIVATE_FOLDER
from orchestrator.errors import ConfigError
from orchestrator.run.rundir import ProgramCopy, Run, RunDir, load_run, program_folder

#: A program is text; what is larger is data or results.
LARGEST_BYTES = 10 << 20
#: Beyond these a folder is no program's: a home, or data in small files.
MOST_FILES, MOST_BYTES = 20_000, 500 << 20
#: git on a cold network folder.
GIT_S = 60.0
#: The value of `code.snapshot` that stands for git's newest commit.
COMMIT = "git"
_SKIPPED = frozenset({"__pycache__", "node_modules"})
#: What installed packages, or a run, have in their folder.
_MARKS = ("pyvenv.cfg", "run.json")
_NAMED = 3


def _git(folder: Path, *words: str, **env: str) -> bytes | None:
    """What git prints; None where there is no git, no repository, or no answer."""
    try:
        command, env = ["git", "-C", str(folder), *words], {**os.environ, **env}
        told = subprocess.run(command, capture_output=True, timeout=GIT_S, check=True, env=env)
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout


def _top(config: RunConfig, folder: Path) -> Path:
    """The folder that is copied. Errors: ConfigError."""
    setting = config.code.snapshot
    if setting == COMMIT:
        if (told := _git(folder, "rev-parse", "--show-toplevel")) is None:
            raise ConfigError("snapshot.no-commit", folder=folder)
        return Path(os.fsdecode(told.rstrip(b"\n")))
    top = folder if setting is True else (folder / user_path(str(setting))).resolve()
    if not top.is_dir():
        raise ConfigError("snapshot.no-folder", folder=top)
    return top


def listing(config: RunConfig, folder: Path, run_dir: RunDir) -> tuple[Path, list[str], dict[str, int]]:
    """What `take` would copy: (a folder, its files relative to it, those that are too large, with their bytes). It is
    what git does not ignore; without git all but hidden files; never installed packages and run folders. Errors:
    ConfigError; OSError.
    """
    top = _top(config, folder)
    kinds = ["--cached"] if config.code.snapshot == COMMIT else ["--cached", "--others", "--exclude-standard"]
    told = _git(top, "ls-files", "-z", *kinds)
    if told is not None:
        names = [name for name in sorted({os.fsdecode(one) for one in told.split(b"\0")}) if (top / name).is_file()]
    else:
        names = sorted(_walked(top))
    folders = {above for name in names for above in (top / name).parents if above != top and above.is_relative_to(top)}
    foreign = {one for one in folders if one == run_dir.path or any((one / mark).exists() for mark in _MARKS)}
    names = [name for name in names if foreign.isdisjoint((top / name).parents)]
    sizes = {name: (top / name).lstat().st_size for name in names}
    left_out = {name: size for name, size in sizes.items() if size > LARGEST_BYTES and config.code.snapshot != COMMIT}
    kept = [name for name in names if name not in left_out]
    size = sum(sizes[name] for name in kept)
    if len(kept) > MOST_FILES or size > MOST_BYTES:
        raise ConfigError("snapshot.too-much", folder=top, files=counted(len(kept), "file"), size=sized(size))
    return top, kept, left_out


def _walked(top: Path) -> list[str]:
    found: list[str] = []
    for where, folders, names in os.walk(top):
        here = Path(where)
        if here != top and any(mark in names for mark in _MARKS):
            folders.clear()
        folders[:] = [name for name in folders if name not in _SKIPPED and not name.startswith(".")]
        found += [str((here / name).relative_to(top)) for name in names if not name.startswith(".")]
        if len(found) > MOST_FILES:
            break  # of a home folder the rest is not looked for
    return found


def take(config: RunConfig, folder: Path, run_dir: RunDir) -> ProgramCopy:
    """Copy the program to `code/program-<hash>` of the run, with git's commit. Errors: ConfigError; OSError."""
    (top, names, _), code_dir = listing(config, folder, run_dir), run_dir.code
    is_commit = config.code.snapshot == COMMIT
    head = (_git(top, "rev-parse", "HEAD") or b"").decode().strip()
    changes = _git(top, "diff", "--binary", "HEAD", "--", ".") if head and not is_commit else None
    make_folder(code_dir, PRIVATE_FOLDER)
    temporary = code_dir / f".program.{secrets.token_hex(4)}.tmp"
    temporary.mkdir(PRIVATE_FOLDER)
    try:
        if is_commit:
            _export(top, temporary)
        for name in names if not is_commit else ():
            make_folder((temporary / name).parent, PRIVATE_FOLDER)
            shutil.copy2(top / name, temporary / name, follow_symlinks=False)
        program = f"program-{_sealed(temporary)}"
        if not (code_dir / program).is_dir():
            publish_folder(temporary, code_dir / program)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if changes:
        write_bytes(code_dir / f"{program}.diff", changes, mode=PRIVATE)
    start = os.path.relpath(folder, top) if folder.is_relative_to(top) else "."
    if not (code_dir / program / start).is_dir():
        raise ConfigError("snapshot.no-commit", folder=folder)
    return ProgramCopy(
        setting=config.code.snapshot,
        program=program,
        start=start,
        taken_at=time.time(),
        commit=head,
        is_changed=bool(changes),
    )


def _export(top: Path, to: Path) -> None:
    """The files of git's newest commit. Errors: ConfigError."""
    with tempfile.TemporaryDirectory() as scratch:
        index = {"GIT_INDEX_FILE": f"{scratch}/index"}
        if _git(top, "read-tree", "HEAD", **index) is None or (
            _git(top, "checkout-index", "--all", f"--prefix={to}/", **index) is None
        ):
            raise ConfigError("snapshot.no-commit", folder=top)


def _sealed(folder: Path) -> str:
    """16 hex digits of what is in the copy, all of it on the disk and its owner's alone."""
    digest = hashlib.sha256()
    for where, folders, names in os.walk(folder):
        folders.sort()
        os.chmod(where, PRIVATE_FOLDER)
        for name in sorted(names):
            path = Path(where) / name
            digest.update(os.fsencode(f"{path.relative_to(folder)}\0"))
            if path.is_symlink():
                digest.update(b"link\0" + os.fsencode(os.readlink(path)))
                continue
            runs = bool(path.stat().st_mode & 0o100)
            path.chmod(PRIVATE | 0o100 * runs)
            with open(path, "rb") as file:
                digest.update(f"{runs}\0{os.fstat(file.fileno()).st_size}\0".encode())
                digest.update(hashlib.file_digest(file, "sha256").digest())
                os.fsync(file.fileno())
    return digest.hexdigest()[:16]


def of_run(config: RunConfig, folder: Path, run_dir: RunDir, before: Run | None, *, renew: bool) -> ProgramCopy | None:
    """The copy that a run has, or a new one; None: none is wanted. Errors: ConfigError where it is gone; as `take`."""
    if not config.code.snapshot:
        return None
    known = before.snapshot if before is not None else None
    if before is None or known is None or known.setting != config.code.snapshot or renew:
        return take(config, folder, run_dir)
    if not (there := program_folder(before, run_dir)).is_dir():
        raise ConfigError("snapshot.gone", path=there, name=config.run_name)
    return known


def notes(config: RunConfig, folder: Path, run_dir: RunDir, scripts: Iterable[str], *, renew: bool) -> tuple[str, ...]:
    """What a person should know of the copy. Errors: ConfigError where it would lack one of `scripts`; as `listing`."""
    if not config.code.snapshot:
        return ()
    known = load_run(run_dir).snapshot if run_dir.run_file.exists() else None
    if known is not None and known.setting == config.code.snapshot and not renew:
        return (f"jobs run {known.words}; `orchestrator start {config.run_name} --renew-code` copies it again.",)
    top, names, left_out = listing(config, folder, run_dir)
    for script in scripts:
        if not Path(script).is_absolute() and os.path.relpath(folder / script, top) not in names:
            raise ConfigError("snapshot.no-script", script=script, folder=top)
    if not left_out:
        return ()
    which = ", ".join(f"{name} ({sized(size)})" for name, size in list(left_out.items())[:_NAMED])
    which += f" and {len(left_out) - _NAMED} more" if len(left_out) > _NAMED else ""
    return (f"code.snapshot leaves out large files: {which}. Name them by absolute paths in your program.",)
