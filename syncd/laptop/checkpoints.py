"""Whole checkpoints on request: which ones, where they lie over there, and where they go here.

A policy's manifest says which checkpoint it belongs to. Where `$SHARED` is the run folder's own `shared/` (the
default), the checkpoint lies beside it; where it is another place, nothing over there says where the run folder is.
"""

from __future__ import annotations

import posixpath
from collections.abc import Container
from pathlib import Path

from syncd.errors import ConfigError, DamagedPolicyError, GoneError
from syncd.remote import Remote
from syncd.shared.layout import Shared, SlotPlace
from syncd.shared.manifest import Manifest
from syncd.store import read_manifest, versions

#: The name of a run folder's own shared folder.
_DEFAULT_SHARED = "shared"


def of_checkpoints(mirror: Path) -> list[Manifest]:
    """Of each slot in the mirror the newest policy that belongs to a checkpoint."""
    found = (_newest_of_checkpoint(place) for place in Shared(mirror).slots())
    return [manifest for manifest in found if manifest is not None]


def _newest_of_checkpoint(place: SlotPlace) -> Manifest | None:
    for version in reversed(versions(place)):
        try:
            manifest = read_manifest(place, version)
        except (OSError, DamagedPolicyError):
            continue
        if manifest.lineage.checkpoint is not None:
            return manifest
    return None


def path_in_run(manifest: Manifest) -> str:
    """Where the checkpoint of `manifest` lies in its run folder."""
    origin = manifest.lineage.checkpoint
    if origin is None:
        raise ValueError(f"{manifest.run_id}/{manifest.slot} {manifest.version} belongs to no checkpoint")
    return f"slots/{manifest.slot}/attempts/{origin.attempt}/checkpoints/{origin.step}"


def run_folder_of(remote: Remote) -> str:
    """The run folder over there. Errors: ConfigError where `remote` does not tell."""
    if remote.is_local:
        raise ConfigError(
            f"--checkpoints: {remote} is on this machine, and so are its checkpoints: <run folder>/slots/"
        )
    parent, name = posixpath.split(remote.path.rstrip("/"))
    if name != _DEFAULT_SHARED:
        raise ConfigError(
            f"--checkpoints: {remote} is not called `{_DEFAULT_SHARED}`, and nothing says where the checkpoints are: "
            f"write <run folder>/{_DEFAULT_SHARED}, or fetch them with rsync from <run folder>/slots/"
        )
    return parent or "."


def fetch_newest(remote: Remote, mirror: Path, runs: Container[str], bwlimit: int = 0) -> list[str]:
    """Bring the newest checkpoint of each slot to `DIR/checkpoints/<run id>/<slot>/<attempt>/<step>`; one line each.

    Of `runs` alone, which are over there now: the mirror may have others, of the same folder or of another one, and a
    checkpoint does not say whose it is. An interrupted one is gone on with. `bwlimit`: KiB a second, 0 for no limit.
    Errors: ConfigError; those of `syncd.transports.rsync.fetch_tree`.
    """
    from syncd.transports.rsync import fetch_tree  # noqa: PLC0415 - rsync is for those who ask for it

    run_folder = run_folder_of(remote)
    lines = []
    for manifest in (one for one in of_checkpoints(mirror) if one.run_id in runs):
        origin = manifest.lineage.checkpoint
        if origin is None:
            continue
        into = mirror / "checkpoints" / manifest.run_id / str(manifest.slot) / str(origin.attempt) / str(origin.step)
        name = f"checkpoint of step {origin.step:,} of {manifest.run_id}/{manifest.slot}"
        try:
            fetch_tree(remote, posixpath.join(run_folder, path_in_run(manifest)), into, bwlimit)
        except GoneError:
            lines.append(f"{name} is not there any more; ask again after the next one")
        else:
            lines.append(f"{name} → {into}")
    return lines or ["no policy here belongs to a checkpoint yet; ask again after the first one"]
