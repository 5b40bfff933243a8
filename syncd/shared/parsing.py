"""Reading manifests, those of format 1 (version 0.1) too: their policies still play."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field, ValidationError

from syncd.errors import DamagedPolicyError
from syncd.shared.layout import NAME
from syncd.shared.manifest import (
    FORMAT,
    MAX_MANIFEST_BYTES,
    Blob,
    Count,
    Golden,
    Lineage,
    Manifest,
    PolicyFields,
    Release,
    Score,
    SealedModel,
    SuiteFields,
    Word,
    digest_of,
)

OLD_FORMAT = 1
#: What format 1 could say of a policy, and what that is now.
_KIND, _DISTRIBUTION = "gaussian-mlp", "squashed-normal"
_REWARD, _SUITE_VERSION = "v2", "1"


class _OldArchitecture(SealedModel):
    kind: Word
    obs_dim: Annotated[int, Field(ge=1, le=65536)]
    act_dim: Annotated[int, Field(ge=1, le=4096)]
    hidden: Annotated[tuple[Annotated[int, Field(ge=1, le=65536)], ...], Field(max_length=64)]
    tasks: Annotated[tuple[Word, ...], Field(min_length=1, max_length=1000)]


class _OldSpec(SealedModel):
    reward: Word
    horizon: Annotated[int, Field(ge=1, le=100_000)]
    goal_seed: Annotated[int, Field(ge=0, lt=2**53)]
    metaworld: Release
    mujoco: Release


class _OldGolden(SealedModel):
    obs: Annotated[tuple[tuple[float, ...], ...], Field(max_length=64)]
    task: Annotated[tuple[Count, ...], Field(max_length=64)]
    action: Annotated[tuple[tuple[float, ...], ...], Field(max_length=64)]
    tolerance: Annotated[float, Field(gt=0, le=1)]


class OldManifest(SealedModel):
    """Format 1: Meta-World's spaces, an actor of plain layers."""

    run_id: Annotated[str, Field(pattern=rf"^{NAME.pattern}$")]
    run_name: Word
    slot: Annotated[int, Field(ge=0, lt=1_000_000)]
    attempt: Annotated[int, Field(ge=0, lt=1_000_000)]
    seq: Annotated[int, Field(ge=0, lt=1_000_000_000)]
    step: Count
    updates: Count
    created_at: Annotated[float, Field(ge=0, le=1e12)]
    architecture: _OldArchitecture
    spec: _OldSpec
    lineage: Lineage
    golden: _OldGolden
    score: Score | None = None
    format: int
    blob: Blob
    digest: str

    def is_whole(self) -> bool:
        """Whether the digest is right."""
        return self.digest == digest_of(self)

    def as_new(self) -> Manifest:
        """The same in the words of `Manifest`. Its digest is the old one's."""
        shape, spec = self.architecture, self.spec
        obs = {"state": {"shape": [shape.obs_dim], "dtype": "float32", "low": None, "high": None}}
        tasks = list(shape.tasks)
        spaces = {"obs": obs, "action": {"box": shape.act_dim}, "tasks": tasks, "horizon": spec.horizon}
        return Manifest(
            **self.model_dump(exclude={"architecture", "spec", "golden"}),
            policy=PolicyFields(
                spaces=spaces,
                network={"actor_hidden": list(shape.hidden)},
                distribution=_DISTRIBUTION if shape.kind == _KIND else shape.kind,
            ),
            suite=SuiteFields(
                name="metaworld",
                version=_SUITE_VERSION if spec.reward == _REWARD else spec.reward,
                settings={"name": "metaworld", "tasks": tasks, "horizon": spec.horizon},
                seed=spec.goal_seed,
                packages={"metaworld": spec.metaworld, "mujoco": spec.mujoco},
            ),
            golden=Golden(**self.golden.model_dump()),
        )


def parse_manifest(data: bytes) -> Manifest:
    """The manifest in `data`, whole; one of format 1 in the words of this one.

    Errors: DamagedPolicyError with one phrase.
    """
    if len(data) > MAX_MANIFEST_BYTES:
        raise DamagedPolicyError("policy.manifest-too-large", bytes=len(data), most=MAX_MANIFEST_BYTES)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedPolicyError("policy.no-json") from error
    stated = value.get("format") if isinstance(value, dict) else None
    if type(stated) is int and stated not in {OLD_FORMAT, FORMAT}:
        raise DamagedPolicyError("policy.newer-format", found=stated, known=FORMAT)
    try:
        manifest = (OldManifest if stated == OLD_FORMAT else Manifest).model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise DamagedPolicyError(
            "policy.bad-field", field=field[:100], why=first.get("ctx", {}).get("error", first["msg"])
        ) from error
    if not manifest.is_whole():
        raise DamagedPolicyError("policy.bad-digest")
    return manifest.as_new() if isinstance(manifest, OldManifest) else manifest
