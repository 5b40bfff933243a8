"""What is said of one published policy: where it comes from, what it is, how to check it.

A manifest is one small JSON file, written once. `digest` seals it; `blob.sha256` seals the weights.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from anchorleg.printable import printable
from syncd.errors import DamagedPolicyError
from syncd.shared.layout import NAME, VERSION_TEXT, Version

FORMAT = 1
ENCODING = "bf16-planes-zstd"
#: A manifest with 64 golden observations has 60 kB; more is no manifest of ours, and is not parsed.
MAX_MANIFEST_BYTES = 256 * 1024
#: Decompressed bytes of one policy. A 1024 x 1024 x 1024 actor has 4.3 MB, one of 4096 has 68; reading takes three
#: times as much memory, and no server makes a laptop take more.
MAX_RAW_BYTES = 128 * 1024 * 1024
#: Weights shrink to 0.7 of themselves. Larger ones that shrink to less than this part of them are no weights: a file of
#: 8 kB must not fill the memory. A megabyte may be all zeros.
MAX_GROWTH = 64
_ANY_GROWTH_BYTES = 1024 * 1024
#: The frame of incompressible data is a little longer than the data (zstd's bound), and the table comes before it.
MAX_BLOB_BYTES = MAX_RAW_BYTES + MAX_RAW_BYTES // 128 + 1024 * 1024
_BYTES_A_NUMBER = 2  # bf16


_Count = Annotated[int, Field(ge=0, lt=2**53)]


def _checked_word(text: str) -> str:
    if not text.isprintable():  # and not made so: the digest seals it as it is
        raise ValueError("it has characters that cannot be shown")
    return text


_Word = Annotated[str, Field(max_length=200), AfterValidator(_checked_word)]
#: Of a package, as PEP 440 has them: nothing that a shell would take for more than a word.
_Release = Annotated[str, Field(pattern=r"^[0-9]{1,6}(\.[0-9]{1,6}){0,5}[A-Za-z0-9.+_-]{0,40}$")]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Shape = Annotated[tuple[Annotated[int, Field(ge=0, le=2**24)], ...], Field(max_length=8)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Architecture(_Model):
    """The shape of the actor. Unknown kinds are for the reader to refuse: newer programs may publish them."""

    kind: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,40}$")]
    obs_dim: Annotated[int, Field(ge=1, le=65536)]
    act_dim: Annotated[int, Field(ge=1, le=4096)]
    hidden: Annotated[tuple[Annotated[int, Field(ge=1, le=65536)], ...], Field(max_length=64)]
    tasks: Annotated[tuple[_Word, ...], Field(min_length=1, max_length=1000)]


class Spec(_Model):
    """What it was trained on: version of the reward, steps of an episode, seed of the goals, packages' versions."""

    reward: _Word
    horizon: Annotated[int, Field(ge=1, le=100_000)]
    goal_seed: Annotated[int, Field(ge=0, lt=2**53)]
    metaworld: _Release
    mujoco: _Release


class Origin(_Model):
    """The checkpoint that a publication belongs to."""

    attempt: _Count
    step: _Count


class Lineage(_Model):
    """Where it comes from: hash of the training's identity, the version before, the checkpoint if it is one's."""

    identity: _Word
    parent: Annotated[str, Field(pattern=rf"^{VERSION_TEXT.pattern}$")] | None = None
    checkpoint: Origin | None = None


class Golden(_Model):
    """Observations [G, obs_dim], their tasks [G], and the greedy actions [G, act_dim] that the weights must give.

    `tolerance` is absolute, on an action's component.
    """

    obs: Annotated[tuple[tuple[float, ...], ...], Field(max_length=64)]
    task: Annotated[tuple[_Count, ...], Field(max_length=64)]
    action: Annotated[tuple[tuple[float, ...], ...], Field(max_length=64)]
    tolerance: Annotated[float, Field(gt=0, le=1)]


class Score(_Model):
    """The last evaluation before the publication: at which step, mean success over tasks (0 to 1), goals a task."""

    step: _Count
    mean_success: Annotated[float, Field(ge=0, le=1)]
    goals_per_task: Annotated[int, Field(ge=1)]


class Blob(_Model):
    """The file of the weights. `bytes` on disk, `raw_bytes` decompressed (2 a number), `tensors`: name → shape."""

    sha256: _Sha256
    bytes: Annotated[int, Field(ge=1, le=MAX_BLOB_BYTES)]
    raw_bytes: Annotated[int, Field(ge=0, le=MAX_RAW_BYTES)]
    encoding: _Word = ENCODING
    tensors: Annotated[dict[_Word, _Shape], Field(max_length=10_000)]

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        numbers = sum(math.prod(shape) for shape in self.tensors.values())
        if self.raw_bytes != _BYTES_A_NUMBER * numbers:
            raise ValueError(f"raw_bytes {self.raw_bytes} is not 2 x {numbers} numbers")
        if self.raw_bytes > max(_ANY_GROWTH_BYTES, MAX_GROWTH * self.bytes):
            raise ValueError(f"{self.bytes} bytes that grow to {self.raw_bytes} are no weights")
        return self


class Draft(_Model):
    """What the caller of `publish` knows. `created_at` is unix seconds; `updates` counts gradient updates."""

    run_id: Annotated[str, Field(pattern=rf"^{NAME.pattern}$")]
    run_name: _Word
    slot: Annotated[int, Field(ge=0, lt=1_000_000)]
    attempt: Annotated[int, Field(ge=0, lt=1_000_000)]
    seq: Annotated[int, Field(ge=0, lt=1_000_000_000)]
    step: _Count
    updates: _Count
    created_at: Annotated[float, Field(ge=0, le=1e12)]
    architecture: Architecture
    spec: Spec
    lineage: Lineage
    golden: Golden
    score: Score | None = None

    @model_validator(mode="after")
    def _golden_fits(self) -> Self:
        golden, shape = self.golden, self.architecture
        if not len(golden.obs) == len(golden.task) == len(golden.action):
            raise ValueError("golden: obs, task and action differ in length")
        if {len(row) for row in golden.obs} - {shape.obs_dim} or {len(row) for row in golden.action} - {shape.act_dim}:
            raise ValueError("golden: a row is not as wide as the architecture says")
        if any(task >= len(shape.tasks) for task in golden.task):
            raise ValueError("golden: a task's number is beyond the tasks")
        return self

    @property
    def version(self) -> Version:
        """Which publication of its slot."""
        return Version(self.attempt, self.seq)


class Manifest(Draft):
    """A published policy, sealed. `digest` is the sha256 of all the rest."""

    format: int = FORMAT
    blob: Blob
    digest: str = ""

    def sealed(self) -> Self:
        """The same with its digest."""
        return self.model_copy(update={"digest": self._digest()})

    def is_whole(self) -> bool:
        """Whether the digest is right."""
        return self.digest == self._digest()

    def to_bytes(self) -> bytes:
        """As it lies on the disk."""
        return (self.model_dump_json() + "\n").encode()

    def _digest(self) -> str:
        text = json.dumps(self.model_dump(mode="json", exclude={"digest"}), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def parse_manifest(data: bytes) -> Manifest:
    """The manifest in `data`, whole and of this format. Errors: DamagedPolicyError with one phrase."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise DamagedPolicyError(f"its manifest has {len(data)} bytes; {MAX_MANIFEST_BYTES} is the most")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedPolicyError("its manifest is torn or no JSON") from error
    stated = value.get("format") if isinstance(value, dict) else None
    if type(stated) is int and stated != FORMAT:
        raise DamagedPolicyError(f"its format {stated} is not the {FORMAT} that this version reads")
    try:
        manifest = Manifest.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise DamagedPolicyError(f"its manifest is not one ({printable(field, 100)}: {first['msg']})") from error
    if not manifest.is_whole():
        raise DamagedPolicyError("its manifest does not match its own digest")
    return manifest
