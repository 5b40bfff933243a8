"""What is said of one published policy: where it comes from, what it is, how to check it.

A manifest is one small JSON file, written once. `digest` seals it; `blob.sha256` seals the weights.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from syncd.errors import DamagedPolicyError, InvalidFieldError
from syncd.shared.layout import NAME, VERSION_TEXT, Version

FORMAT = 2
ENCODING = "bf16-planes-zstd"
#: A manifest of fifty tasks has 8 kB; more is no manifest of ours, and is not parsed.
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
BYTES_A_NUMBER = 2  # bf16


Count = Annotated[int, Field(ge=0, lt=2**53)]


def _checked_word(text: str) -> str:
    if not text.isprintable():  # and not made so: the digest seals it as it is
        raise InvalidFieldError("manifest.unprintable")
    return text


def _checked_fields(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Errors: ValueError where a text cannot be shown, a number is none, or it is deeper than any of ours."""
    waiting: list[tuple[int, Any]] = [(0, value)]
    while waiting:
        depth, one = waiting.pop()
        if depth > _MAX_DEPTH:
            raise InvalidFieldError("manifest.too-deep")
        if isinstance(one, str):
            if len(one) > _MAX_WORD:
                raise InvalidFieldError("manifest.long-text")
            _checked_word(one)
        elif isinstance(one, float) and not math.isfinite(one):
            raise InvalidFieldError("manifest.not-finite")
        elif isinstance(one, dict):
            waiting += [(depth + 1, inner) for pair in one.items() for inner in pair]
        elif isinstance(one, list):
            waiting += [(depth + 1, inner) for inner in one]
    return value


_MAX_DEPTH, _MAX_WORD = 8, 200
Fields = Annotated[dict[str, JsonValue], AfterValidator(_checked_fields)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}$")]
Word = Annotated[str, Field(max_length=200), AfterValidator(_checked_word)]
#: Of a package, as PEP 440 has them: nothing that a shell would take for more than a word.
Release = Annotated[str, Field(pattern=r"^[0-9]{1,6}(\.[0-9]{1,6}){0,5}[A-Za-z0-9.+_-]{0,40}$")]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Shape = Annotated[tuple[Annotated[int, Field(ge=0, le=2**24)], ...], Field(max_length=8)]


class SealedModel(BaseModel):
    """What is never changed once it is written."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class PolicyFields(SealedModel):
    """All that its net is built from, in the publisher's words, which the reader checks when it builds the net.

    `spaces`: observations by key, the action, tasks and horizon; `network`: the shapes of the net; `distribution`: what
    actions are drawn from; `normalises`: it brings rows of numbers to one scale itself. Unknown words are for the
    reader to refuse: newer programs may publish them.
    """

    spaces: Fields
    network: Fields
    distribution: _Name
    normalises: bool = False


class SuiteFields(SealedModel):
    """What it was trained in: the suite by name, its version and settings, the seed of its fixed starts, and versions
    of the packages that decide what comes of an action.
    """

    name: _Name
    version: Word
    settings: Fields
    seed: Annotated[int, Field(ge=0, lt=2**53)]
    packages: Annotated[dict[Word, Release], Field(max_length=100)]


class Origin(SealedModel):
    """The checkpoint that a publication belongs to."""

    attempt: Count
    step: Count


class Lineage(SealedModel):
    """Where it comes from: hash of the training's identity, the version before, the checkpoint if it is one's."""

    identity: Word
    parent: Annotated[str, Field(pattern=rf"^{VERSION_TEXT.pattern}$")] | None = None
    checkpoint: Origin | None = None


class Golden(SealedModel):
    """The greedy actions [G, A] that the weights must give for observations that `seed` decides: drawn from the spaces,
    so that pictures cost no bytes. Of actions that are one of A it is the log probability of each: where two are as
    likely, machines differ in which one they take; divided by the row's largest logit where that is above 1, for large
    logits are as exact as small ones, and no more. Row g is of task g modulo K. `tolerance` is absolute, on a number.
    """

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    action: Annotated[tuple[tuple[float, ...], ...], Field(max_length=64)]
    tolerance: Annotated[float, Field(gt=0, le=1)]
    # Those of format 1, which had no seed: the digest of every manifest of format 2 counts them, as null.
    obs: None = None
    task: None = None


class Score(SealedModel):
    """The last evaluation before the publication: at which step, mean success over tasks (0 to 1), goals a task.

    Where no success is told: the mean return over tasks, and its standard error.
    """

    step: Count
    mean_success: Annotated[float, Field(ge=0, le=1)] | None = None
    mean_return: FiniteFloat | None = None
    return_error: Annotated[FiniteFloat, Field(ge=0)] | None = None
    goals_per_task: Annotated[int, Field(ge=1)]

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.mean_success is None) == (self.mean_return is None):
            raise InvalidFieldError("manifest.two-scores")
        return self

    @model_serializer(mode="wrap")
    def _what_is_there(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in plain(self).items() if value is not None}

    def __str__(self) -> str:
        if self.mean_success is not None:
            return f"success {100 * self.mean_success:.1f} %"
        return f"return {self.mean_return:,.1f}"


class Blob(SealedModel):
    """The file of the weights. `bytes` on disk, `raw_bytes` decompressed (2 a number), `tensors`: name → shape."""

    sha256: _Sha256
    bytes: Annotated[int, Field(ge=1, le=MAX_BLOB_BYTES)]
    raw_bytes: Annotated[int, Field(ge=0, le=MAX_RAW_BYTES)]
    encoding: Word = ENCODING
    tensors: Annotated[dict[Word, _Shape], Field(max_length=10_000)]

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        numbers = sum(math.prod(shape) for shape in self.tensors.values())
        if self.raw_bytes != BYTES_A_NUMBER * numbers:
            raise InvalidFieldError("manifest.other-size", raw_bytes=self.raw_bytes, numbers=numbers)
        if self.raw_bytes > max(_ANY_GROWTH_BYTES, MAX_GROWTH * self.bytes):
            raise InvalidFieldError("manifest.grows", bytes=self.bytes, raw_bytes=self.raw_bytes)
        return self


class Draft(SealedModel):
    """What the caller of `publish` knows. `created_at` is unix seconds; `updates` counts gradient updates."""

    run_id: Annotated[str, Field(pattern=rf"^{NAME.pattern}$")]
    run_name: Word
    slot: Annotated[int, Field(ge=0, lt=1_000_000)]
    attempt: Annotated[int, Field(ge=0, lt=1_000_000)]
    seq: Annotated[int, Field(ge=0, lt=1_000_000_000)]
    step: Count
    updates: Count
    created_at: Annotated[float, Field(ge=0, le=1e12)]
    policy: PolicyFields
    suite: SuiteFields
    lineage: Lineage
    golden: Golden
    score: Score | None = None

    @property
    def tasks(self) -> tuple[str, ...]:
        """Of its spaces, in index order; empty where they say none that is a text."""
        said = self.policy.spaces.get("tasks")
        return tuple(task for task in said if isinstance(task, str)) if isinstance(said, list) else ()

    @property
    def version(self) -> Version:
        """Which publication of its slot."""
        return Version(self.attempt, self.seq)


class Manifest(Draft):
    """A published policy, sealed. `digest` is the sha256 of all the rest.

    `encoder`: the weights that learn nothing, in a file of their own: it is the same for all versions, and crosses a
    line once.
    """

    format: int = FORMAT
    blob: Blob
    encoder: Blob | None = None
    digest: str = ""

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """All of its files."""
        return (self.blob,) if self.encoder is None else (self.encoder, self.blob)

    @model_serializer(mode="wrap")
    def _with_what_is_there(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in plain(self).items() if name != "encoder" or value is not None}

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
        raise DamagedPolicyError("policy.manifest-too-large", bytes=len(data), most=MAX_MANIFEST_BYTES)
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedPolicyError("policy.no-json") from error
    stated = value.get("format") if isinstance(value, dict) else None
    if type(stated) is int and stated != FORMAT:
        raise DamagedPolicyError("policy.other-format", found=stated, known=FORMAT)
    try:
        manifest = Manifest.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise DamagedPolicyError(
            "policy.bad-field", field=field[:100], why=first.get("ctx", {}).get("error", first["msg"])
        ) from error
    if not manifest.is_whole():
        raise DamagedPolicyError("policy.bad-digest")
    return manifest
