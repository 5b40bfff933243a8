"""The fixed code of a run: a copy of the packages, named by its content, first on every job's PYTHONPATH.

A later job of the run never picks up an edit by accident, and a container needs only the dependencies.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import secrets
import shutil
from pathlib import Path

from anchorleg.files import fsync_folder, make_folder, publish_folder, write_bytes
from orchestrator.disk import PRIVATE, PRIVATE_FOLDER, private_opener

PACKAGES = ("anchorleg", "orchestrator", "trainer", "syncd")
#: Of these a program of one's own may import: `anchorleg.job`, `orchestrator.integrations`.
IMPORTABLE = ("anchorleg", "orchestrator")
#: In the copy, a folder of links to these alone: the whole copy would hide other people's packages of our names.
FOR_PROGRAMS = "for-programs"


def package_folder(name: str) -> Path:
    """Where an installed package lives, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(f"the installation lacks the package {name}; reinstall Anchorleg from its checkout")
    return Path(next(iter(spec.submodule_search_locations)))


def _contents() -> list[tuple[str, bytes]]:
    """(name in the copy, what is in the file), sorted."""
    files = []
    for package in PACKAGES:
        folder = package_folder(package)
        files += [
            (f"{package}/{path.relative_to(folder)}", path)
            for path in folder.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts and path.suffix not in {".pyc", ".tmp"}
        ]
    here = Path(__file__).parents[1]
    if not (here / "templates").is_dir():  # an editable install: the wheel has them beside the code
        tree = here.parent / "templates"
        files += [(f"orchestrator/templates/{path.name}", path) for path in tree.iterdir() if path.is_file()]
    return [(name, path.read_bytes()) for name, path in sorted(files)]


def _hash_of(contents: list[tuple[str, bytes]]) -> str:
    digest = hashlib.sha256()
    for name, data in contents:
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()[:16]


def code_hash() -> str:
    """What `fix_code` would call the copy; nothing is written. Errors: OSError."""
    return _hash_of(_contents())


def fix_code(code_dir: Path) -> str:
    """Copy the packages to `code_dir/<hash>`, the answer; of a copy that is there, mend what is missing or differs,
    each file whole, so that it may be done beside the run's owner. Errors: OSError.
    """
    contents = _contents()
    code = _hash_of(contents)
    if (code_dir / code).is_dir():
        _mend(code_dir / code, contents)
        return code
    make_folder(code_dir, PRIVATE_FOLDER)
    temporary = code_dir / f".{code}.{secrets.token_hex(4)}.tmp"
    try:
        for folder in sorted({above for name, _ in contents for above in Path(name).parents}):
            (temporary / folder).mkdir(PRIVATE_FOLDER)
        for name, data in contents:
            with open(temporary / name, "wb", opener=private_opener) as file:
                file.write(data)
                os.fsync(file.fileno())
        _link(temporary / FOR_PROGRAMS)
        publish_folder(temporary, code_dir / code)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not (code_dir / code).is_dir():  # otherwise somebody else was faster with the same content
            raise
    return code


def _mend(folder: Path, contents: list[tuple[str, bytes]]) -> None:
    """Jobs may be reading it. What is not of the copy goes: a job would import it, or refuse the whole."""
    named = {name for name, _ in contents}
    for where, folders, names in os.walk(folder):
        here = Path(where).relative_to(folder)
        folders[:] = [name for name in folders if name not in {"__pycache__", FOR_PROGRAMS}]
        for name in names:
            if str(here / name) not in named and not name.startswith("."):
                (folder / here / name).unlink(missing_ok=True)
    for name, data in contents:
        path = folder / name
        try:
            is_whole = path.read_bytes() == data
        except FileNotFoundError:
            is_whole = False
        if not is_whole:
            make_folder(path.parent, PRIVATE_FOLDER)
            write_bytes(path, data, mode=PRIVATE)
    _link(folder / FOR_PROGRAMS)


def _link(links: Path) -> None:
    links.mkdir(PRIVATE_FOLDER, exist_ok=True)
    for link in map(links.joinpath, os.listdir(links)):
        if not link.is_symlink() and link.is_dir():
            shutil.rmtree(link)  # in a copy of a run folder they may be folders
        elif not link.is_symlink() or link.name not in IMPORTABLE or os.readlink(link) != f"../{link.name}":
            link.unlink()
    if missing := [name for name in IMPORTABLE if not os.path.lexists(links / name)]:
        for name in missing:
            (links / name).symlink_to(f"../{name}")
        fsync_folder(links)
