"""Run folders that an older version wrote: how they are kept as archives, laid out again, and what a slot's newest
checkpoint loads as.

`tests/fixtures/checkpoints/make.py` writes them; in their text stand `@FOLDER@`, `@TREE@`, `@PYTHON@` and `@HOST@`
for the place, the code, the interpreter and the machine that they were made with. `python old_runs.py SLOT` prints what
is loaded, by whichever packages are on the PYTHONPATH.
"""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainer.checkpoints.checkpoint import Contents

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "checkpoints"
ARCHIVE, LOADED = "run.tar.xz", "loaded.json"
#: A machine that no test runs on: jobs of its own are over by their records alone.
ELSEWHERE = "login1.old"

#: The fields of mtsac's training, which is one on point masses (`train_contributed.py`).
CONTRIBUTED: dict[str, Any] = {
    "buffer_size": 40, "total_steps": 480, "checkpoint_interval": 160, "actor_hidden": [8], "critic_hidden": [8],
}  # fmt: skip


def unpacked(name: str, folder: Path) -> Path:
    """The fixture `name` laid out in `folder`, which is made; returns it."""
    folder.mkdir(parents=True)
    with tarfile.open(FIXTURES / name / ARCHIVE) as archive:
        archive.extractall(folder, filter="tar")
    words = {"@FOLDER@": folder, "@TREE@": FIXTURES.parents[2], "@PYTHON@": sys.executable, "@HOST@": ELSEWHERE}
    exchange(folder, {old: str(new) for old, new in words.items()})
    return folder


def packed(folder: Path, name: str, python: str, tree: Path) -> int:
    """Keep `folder` as the fixture `name`; returns the archive's bytes. `python`, `tree`: what its programs ran in. The
    run's copy of the code is left out.
    """
    exchange(
        folder,
        {str(folder): "@FOLDER@", str(tree): "@TREE@", python: "@PYTHON@", f'"{socket.gethostname()}"': '"@HOST@"'},
    )
    target = FIXTURES / name / ARCHIVE
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for path in sorted(folder.glob("[!.]*")):  # without what was built on the way
            archive.add(path, path.name, filter=_nobodys)
    return target.stat().st_size


def _nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if "/code/" in entry.name:
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def exchange(folder: Path, words: Mapping[str, str]) -> None:
    """Replace words in every text below `folder`; tensors and rows stay as they are."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        before = data = path.read_bytes()
        for old, new in words.items():
            data = data.replace(old.encode(), new.encode())
        if data != before and b"\0" not in data:
            with path.open("r+b") as file:  # in place: some are linked under two names
                file.truncate()
                file.write(data)


def loaded(slot: Path) -> dict[str, Any]:
    """What the newest checkpoint of a slot is read as, before any update: short digests of each tensor, of each part's
    numbers and of the rows. It depends on no processor.
    """
    from slot_digest import digest_of, newest

    from trainer.checkpoints.checkpoint import read_manifest
    from trainer.checkpoints.resume import load_exact

    folder = newest(slot)
    contents, experience = load_exact(folder, slot, read_manifest(folder))
    rings = {
        "replay": experience and experience.own,
        "contributed": experience and experience.others and experience.others.ring,
    }
    rows = {name: digest_of(ring.arrays())[:16] for name, ring in rings.items() if ring}
    return {"step": contents.step, "parts": by_part(contents), "rows": rows}


def by_part(contents: Contents) -> dict[str, Any]:
    """Name of a part → the digests of its tensors by name, and of its numbers."""
    from slot_digest import digest_of

    return {
        name: {
            "tensors": {key: digest_of({"": tensor})[:16] for key, tensor in sorted(part.tensors.items())},
            "numbers": hashlib.sha256(json.dumps(part.numbers, sort_keys=True).encode()).hexdigest()[:16],
        }
        for name, part in contents.parts.items()
    }


if __name__ == "__main__":
    print(json.dumps(loaded(Path(sys.argv[1])), indent=1))
