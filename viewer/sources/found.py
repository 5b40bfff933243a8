"""Which runs, or which mirror, somebody means by a word, and what there is where there is none."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from anchorleg.files import read_json_or_none
from anchorleg.places import home_folder, user_path
from anchorleg.words import did_you_mean
from orchestrator.commands.options import locate
from orchestrator.errors import AnchorlegError
from orchestrator.run.rundir import entries
from viewer.errors import DamagedError, NothingThere, NotReachable
from viewer.model import ViewSource
from viewer.pacing import Pacer
from viewer.sources.mirror import MirrorFolder
from viewer.sources.runs import RunFolders

#: Where `syncd setup` puts a mirror (`syncd.remote`).
MIRROR = "shared_weights"
#: Where a training that nobody's orchestrator keeps publishes, in its run folder (`trainer train`).
_SHARED = "shared"
#: `user@host:path`; a single letter before the colon would be a disk of Windows.
_REMOTE = re.compile(r"(?:[^/\s]+@)?[A-Za-z0-9][A-Za-z0-9._-]+:.*")


def find_source(word: str | None, environ: Mapping[str, str] = os.environ, *, pacer: Pacer | None = None) -> ViewSource:
    """What to show. `word`: a run's name or id, a run folder, a folder with runs in it, a mirror, or None: what is
    here, else all runs of this account, else the mirror of the home folder.

    Errors: NothingThere, NotReachable, DamagedError.
    """
    try:
        return _found(word, environ, pacer)
    except OSError as error:
        raise DamagedError(
            "folder.unreadable", path=error.filename or word or ".", why=error.strerror or error
        ) from None


def _found(word: str | None, environ: Mapping[str, str], pacer: Pacer | None) -> ViewSource:
    if word is None:
        return _here(environ, pacer)
    path = user_path(word)
    if path.is_dir():
        return _in_folder(path.resolve(), environ, pacer)
    if is_elsewhere(word):
        raise NotReachable("remote.lies-there", what=word)
    known = entries(environ)
    for entry in known:
        if word in {entry.run_name, entry.run_id}:
            return RunFolders([Path(entry.run_dir)], entry.run_name, pacer=pacer)
    if "/" in word:
        raise NothingThere("folder.not-there", path=word, known=_known(environ))
    hint = did_you_mean(word, {entry.run_name for entry in known}, f"known here: {_known(environ)}").removesuffix(".")
    raise NothingThere("run.unknown", run=word, hint=hint)


def is_elsewhere(word: str) -> bool:
    """Whether that is `[user@]host:path`, and no folder of this machine."""
    return _REMOTE.fullmatch(word) is not None and not Path(word).is_dir()


def _here(environ: Mapping[str, str], pacer: Pacer | None) -> ViewSource:
    here = Path.cwd()
    if (here / "cluster_config.json").exists():
        try:
            return RunFolders([locate(None, None).path], here.name, pacer=pacer)
        except AnchorlegError:
            if begun := _begun_with(here / "cluster_config.json", environ):
                return RunFolders(begun, here.name, pacer=pacer)
            # A config without a run yet says nothing about other runs
    for folder in (here, here / "runs"):
        if folders := run_folders(folder):
            return RunFolders(folders, str(folder), pacer=pacer, find=partial(run_folders, folder))
    if (here / "v1" / "runs").is_dir():
        return MirrorFolder(here, pacer=pacer)
    if entries(environ):
        return RunFolders(_all(environ), "all runs of this account", pacer=pacer, find=partial(_all, environ))
    mirror = home_folder(environ) / MIRROR
    if (mirror / "v1").is_dir() or (mirror / "state").is_dir():
        return MirrorFolder(mirror, pacer=pacer)
    raise NothingThere("run.none-here")


def _in_folder(path: Path, environ: Mapping[str, str], pacer: Pacer | None) -> ViewSource:
    if (path / "run.json").exists():
        return RunFolders([path], path.name, pacer=pacer)
    for mirror in (path, path / _SHARED):
        if (mirror / "v1" / "runs").is_dir():
            return MirrorFolder(mirror, alone=mirror != path, pacer=pacer)
    for folder in (path, path / "runs"):
        if folders := run_folders(folder):
            return RunFolders(folders, str(folder), pacer=pacer, find=partial(run_folders, folder))
    if (path / "cluster_config.json").exists():
        try:
            return RunFolders([locate(None, path / "cluster_config.json").path], path.name, pacer=pacer)
        except AnchorlegError as error:
            if begun := _begun_with(path / "cluster_config.json", environ):
                return RunFolders(begun, path.name, pacer=pacer)
            raise NothingThere("folder.unused-config", why=error) from None
    if (path / "state").is_dir():
        return MirrorFolder(path, pacer=pacer)
    if (path / "attempts").is_dir():
        raise NothingThere("folder.one-slot", path=path, run=path.parent.parent)
    names = sorted(each.name for each in path.iterdir())[:5]
    raise NothingThere("folder.no-run", path=path, names=", ".join(names) or "nothing", known=_known(environ))


def _begun_with(config: Path, environ: Mapping[str, str]) -> list[Path]:
    """The newest run that was begun with that config file, which is faulty now."""
    folders = [Path(entry.run_dir) for entry in entries(environ)]
    told = ((folder, read_json_or_none(folder / "run.json")) for folder in folders)
    return [folder for folder, record in told if record and record.get("config_path") == str(config)][:1]


def _all(environ: Mapping[str, str]) -> list[Path]:
    return [Path(entry.run_dir) for entry in entries(environ)]


def run_folders(folder: Path) -> list[Path]:
    """Run folders in `folder`, the newest first."""
    found = []
    try:
        for each in folder.iterdir():
            with contextlib.suppress(OSError):
                found.append((-(each / "run.json").stat().st_mtime, each.name, each))
    except OSError:
        return []
    return [each for *_, each in sorted(found)]


def _known(environ: Mapping[str, str]) -> str:
    names = list(dict.fromkeys(entry.run_name for entry in entries(environ)))
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    return shown or "no run yet"
