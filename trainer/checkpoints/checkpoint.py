"""One checkpoint on disk: what is in it, how it is published, how it is read back.

`<attempt_dir>/checkpoints/<step>/`::

    nets.safetensors      what plays: tensors named `policy.…`       kept for milestones, best and final too
    averaged.safetensors  the moving average of what it learned      kept with it; none where `averaging` is 0
    learner.safetensors   what else learns: critics, targets, Adam's state, noise
    envs.safetensors      every environment in the middle of its episode
    state.json            {"parts": {name: numbers}}: counters, random streams, running sums
    manifest.json         sha256 and size of each file, the row files of the rings, versions, identity

The folder is made under a name that is no number, every file is fsynced, the manifest comes last, then the rename.
`kind` "exact" can be resumed; "policy" has its nets only. Tensors are safetensors, the rest is JSON; no pickle.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, Self

import safetensors
import safetensors.numpy
import safetensors.torch
from pydantic import BaseModel, ConfigDict, ValidationError
from torch import Tensor

from anchorleg.files import make_folder, publish_folder, read_regular, write_json
from trainer.checkpoints.rows import CONTRIBUTED, OWN, PEERS, RowsFile
from trainer.errors import DamagedCheckpointError
from trainer.state import State

FORMAT = 2
MANIFEST = "manifest.json"
#: Some 200 bytes a file of rows, and the training section: a thousand times what there is.
MOST_MANIFEST_BYTES = 64 * 2**20
NETS = "nets.safetensors"
AVERAGED_NETS = "averaged.safetensors"
LEARNER = "learner.safetensors"
ENVS = "envs.safetensors"
STATE = "state.json"
#: Tensors whose names begin so go into `NETS`.
POLICY = "policy."
#: The part whose tensors, by the names of the policy's `state_dict`, go into `AVERAGED_NETS`.
AVERAGED = "averaged"
#: The part whose tensors go into `ENVS`.
_COLLECTOR = "collector"
#: The part that the policy belongs to.
_LEARNS = "algorithm"

#: Packages whose versions decide whether a resume can be bit-equal.
_PACKAGES = ("anchorleg", "torch", "numpy", "mujoco", "metaworld", "gymnasium")


@dataclass(frozen=True)
class Contents:
    """All of a checkpoint but the rings' rows: its parts by name. The loop makes it at a barrier; nothing in it changes
    afterwards. As JSON: `policy`, what the policy is built from (`trainer.nets.policy.PolicySpec`), and `training`, the
    whole section, which has this `identity`.
    """

    step: int
    parts: Mapping[str, State]
    policy: Mapping[str, Any]
    training: Mapping[str, Any]
    identity: str

    @property
    def numeric(self) -> Mapping[str, Any]:
        """The choices that bit equality also depends on."""
        numeric: Mapping[str, Any] = self.parts["run"].numbers["numeric"]
        return numeric


class FileRecord(BaseModel):
    """What a file must be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sha256: str
    bytes: int


class CheckpointManifest(BaseModel):
    """`manifest.json`. `digest` is the sha256 of all the rest, so that a flipped bit in here shows too."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int
    kind: Literal["exact", "policy"]
    step: int
    identity: str
    training: dict[str, Any]
    versions: dict[str, str]
    files: dict[str, FileRecord]
    segments: tuple[RowsFile, ...]
    contributed: tuple[RowsFile, ...] = ()
    peers: tuple[RowsFile, ...] = ()
    policy: dict[str, Any] = {}
    digest: str = ""

    @property
    def rows(self) -> dict[str, tuple[RowsFile, ...]]:
        """The files of its rings, by their kind."""
        return {OWN: self.segments, CONTRIBUTED: self.contributed, PEERS: self.peers}

    def sealed(self) -> Self:
        """The same with its digest."""
        return self.model_copy(update={"digest": self._digest()})

    def is_whole(self) -> bool:
        """Whether the digest is right."""
        return self.digest == self._digest()

    def _digest(self) -> str:
        # Without what is empty, so that checkpoints from before there was such a thing keep their digest.
        left_out = {"digest"} | {name for name in ("contributed", "peers", "policy") if not getattr(self, name)}
        text = json.dumps(self.model_dump(mode="json", exclude=left_out), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def versions() -> dict[str, str]:
    """Versions of what computes, by name; a package that is not installed is absent."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def publish(
    attempt_dir: Path,
    contents: Contents,
    rows: Mapping[str, tuple[RowsFile, ...]],
    before_rename: Callable[[], None] = lambda: None,
) -> Path:
    """Make `contents` a checkpoint, whole or not at all; returns its folder.

    `rows`: the files of its rings, by their kind. `before_rename` is the last word: what it raises stops the
    publication. Errors: OSError; no part remains then.
    """
    folder = attempt_dir / "checkpoints"
    make_folder(folder)
    final = folder / f"{contents.step:012d}"
    temporary = folder / f".{contents.step:012d}.{os.getpid()}.tmp"
    temporary.mkdir()
    try:
        files = _files_of(contents)
        for name, data in files.items():
            _write(temporary / name, data)
        manifest = CheckpointManifest(
            format=FORMAT,
            kind="exact",
            step=contents.step,
            identity=contents.identity,
            training=dict(contents.training),
            versions=versions(),
            files={name: FileRecord(sha256=_sha256(data), bytes=len(data)) for name, data in files.items()},
            segments=rows.get(OWN, ()),
            contributed=rows.get(CONTRIBUTED, ()),
            peers=rows.get(PEERS, ()),
            policy=dict(contents.policy),
        ).sealed()
        _write(temporary / MANIFEST, manifest.model_dump_json(indent=1).encode())
        before_rename()
        publish_folder(temporary, final)
    except BaseException:
        # Renamed, only the last fsync failed: others may see it already, so it is published. Where both are gone, a
        # newer attempt has cleared the unfinished folder away.
        if final.exists() and not temporary.exists():
            return final
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final


def read_manifest(folder: Path) -> CheckpointManifest:
    """The manifest of a published checkpoint. Errors: DamagedCheckpointError."""
    try:
        data = read_regular(folder / MANIFEST, MOST_MANIFEST_BYTES, follow=True)
        manifest = CheckpointManifest.model_validate_json(data)
    except OSError as error:
        raise DamagedCheckpointError("damaged.file-unreadable", name=MANIFEST, why=error.strerror) from error
    except ValidationError as error:
        raise DamagedCheckpointError("damaged.manifest-torn") from error
    if not manifest.is_whole():
        raise DamagedCheckpointError("damaged.manifest-digest")
    if manifest.format != FORMAT:
        raise DamagedCheckpointError("damaged.other-format", format=manifest.format, wanted=FORMAT)
    return manifest


def read_nets(folder: Path, manifest: CheckpointManifest) -> dict[str, Tensor]:
    """The policy's tensors, `policy.…`, verified. Errors: DamagedCheckpointError."""
    return _tensors(folder, manifest, NETS)


def read_averaged(folder: Path, manifest: CheckpointManifest) -> dict[str, Tensor] | None:
    """The moving average of what the policy learned, by the names of its `state_dict`, verified; None where there is
    none. Errors: DamagedCheckpointError.
    """
    return _tensors(folder, manifest, AVERAGED_NETS) if AVERAGED_NETS in manifest.files else None


def read_contents(folder: Path, manifest: CheckpointManifest) -> Contents:
    """Everything that `publish` was given, verified. Errors: DamagedCheckpointError, naming the file."""
    try:
        numbers = json.loads(_verified(folder, manifest, STATE))["parts"]
        envs = safetensors.numpy.load(_verified(folder, manifest, ENVS))
    except (ValueError, safetensors.SafetensorError) as error:
        raise DamagedCheckpointError("damaged.contents", why=str(error)) from error
    tensors: dict[str, dict[str, Any]] = {name: {} for name in numbers}
    tensors[_COLLECTOR] = envs
    if AVERAGED in numbers:
        tensors[AVERAGED] = _tensors(folder, manifest, AVERAGED_NETS)
    learned = {**_tensors(folder, manifest, NETS), **_tensors(folder, manifest, LEARNER)}
    for name, tensor in learned.items():
        part, _, rest = name.partition(".")
        of, key = (_LEARNS, name) if name.startswith(POLICY) else (part, rest)
        tensors[of][key] = tensor
    parts = {name: State(tensors[name], numbers[name]) for name in numbers}
    return Contents(manifest.step, parts, manifest.policy, manifest.training, manifest.identity)


def downgrade(folder: Path, manifest: CheckpointManifest) -> None:
    """Keep the nets and their average only. The new manifest comes first, so at every moment the folder is a whole
    checkpoint.

    Errors: OSError; calling it again finishes the work.
    """
    plays = {name: record for name, record in manifest.files.items() if name in {NETS, AVERAGED_NETS}}
    if manifest.kind == "exact":
        rows = dict.fromkeys(("segments", "contributed", "peers"), ())
        nets_only = manifest.model_copy(update={"kind": "policy", **rows, "files": plays}).sealed()
        write_json(folder / MANIFEST, nets_only.model_dump(mode="json"))
    for name in os.listdir(folder):
        if name not in {MANIFEST, *plays}:
            (folder / name).unlink(missing_ok=True)


def _files_of(contents: Contents) -> dict[str, bytes]:
    nets: dict[str, Tensor] = {}
    others: dict[str, Tensor] = {}
    for part, state in contents.parts.items():
        for name, tensor in state.tensors.items() if part not in {_COLLECTOR, AVERAGED} else ():
            if name.startswith(POLICY):
                nets[name] = tensor
            else:
                others[f"{part}.{name}"] = tensor
    numbers = {"parts": {part: dict(state.numbers) for part, state in contents.parts.items()}}
    averaged = contents.parts.get(AVERAGED)
    return {
        NETS: safetensors.torch.save(nets),
        **({AVERAGED_NETS: safetensors.torch.save(dict(averaged.tensors))} if averaged is not None else {}),
        LEARNER: safetensors.torch.save(others),
        ENVS: safetensors.numpy.save(dict(contents.parts[_COLLECTOR].tensors)),
        STATE: json.dumps(numbers, allow_nan=False).encode(),
    }


def _tensors(folder: Path, manifest: CheckpointManifest, name: str) -> dict[str, Tensor]:
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(_verified(folder, manifest, name))
    except safetensors.SafetensorError as error:
        raise DamagedCheckpointError("damaged.file-unreadable", name=name, why=error) from error
    return tensors


def _verified(folder: Path, manifest: CheckpointManifest, name: str) -> bytes:
    record = manifest.files.get(name)
    if record is None:
        raise DamagedCheckpointError("damaged.not-in-manifest", name=name)
    try:
        data = read_regular(folder / name, record.bytes + 1, follow=True)
    except OSError as error:
        raise DamagedCheckpointError("damaged.file-unreadable", name=name, why=error.strerror) from error
    if len(data) > record.bytes:
        raise DamagedCheckpointError("damaged.file-longer", name=name, bytes=record.bytes)
    if len(data) != record.bytes:
        raise DamagedCheckpointError("damaged.file-cut", name=name, found=len(data), bytes=record.bytes)
    if _sha256(data) != record.sha256:
        raise DamagedCheckpointError("damaged.file-changed", name=name)
    return data


def _write(path: Path, data: bytes) -> None:
    with open(path, "xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
