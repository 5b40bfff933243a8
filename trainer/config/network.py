"""The nets' shapes (a training's section `network`), and what encoders of pictures and clips there are.

Of the encoders in `trainer/nets/encoders/` a login node reads here, without torch, what each reads and makes, and where
its published weights come from. Figures of size are checked against the nets by
`tests/unit/trainer/test_encoder_settings.py`, costs are measured by `bench/encoders.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from trainer.config.fields import CountInt, NotNegative, PositiveInt, SettingFinding, Sha256, TrainingSettings, refused
from trainer.config.find import ENCODERS, checked
from trainer.errors import FieldError

Widths = Annotated[tuple[Annotated[int, Field(ge=1, le=65_536)], ...], Field(min_length=1, max_length=16)]
CriticNet = Literal["mlp", "heads", "residual"]
#: What reads pictures, and clips, where nobody says what.
AUTO, AUTO_PICTURES, AUTO_CLIPS = "auto", "nature", "simple3dcnn"
#: Channels of a camera that sees colours.
RGB = 3
#: The encoder that reads a clip's frames one by one.
_OVER_TIME = "simple2dcnn"


@dataclass(frozen=True)
class PublishedWeights:
    """A file of weights that its authors give away. `licence`: what it says of the file, not of the code."""

    file: str
    url: str
    megabytes: int
    trained_on: str
    licence: str


@dataclass(frozen=True)
class EncoderArch:
    """One encoder. `size` and `frames`: what it is meant for, with `parameters` there, of one camera in colour.

    `features`: what it makes of a camera there; `chosen`: a config may say how many. `least`: the smallest picture, and
    `squares` the sides that a picture is cut into, from so many pixels on. `is_rgb`: it reads colours alone.
    """

    about: str
    reads: Literal["pictures", "clips"]
    size: int
    frames: int
    features: int
    parameters: int
    least: int
    chosen: bool = True
    squares: tuple[tuple[int, int], ...] = ()
    is_rgb: bool = False
    weights: PublishedWeights | None = None

    def square(self, side: int) -> int:
        """Pixels of a side of the squares that a picture of `side` is cut into; 1: it is not."""
        return max((pair for pair in self.squares if pair[0] <= side), default=(0, 1))[1]


_R3D18_FILE = PublishedWeights(
    "r3d_18-b3b3357e.pth",
    "https://download.pytorch.org/models/r3d_18-b3b3357e.pth",
    127,
    "Kinetics-400: 16 frames, 15 per second",
    "not stated: torchvision's code is BSD, but weights may carry the terms of their training data (Kinetics-400)",
)
_TIMESFORMER_FILE = PublishedWeights(
    "pytorch_model.bin",
    "https://huggingface.co/facebook/timesformer-base-finetuned-k400/resolve/main/pytorch_model.bin",
    486,
    "Kinetics-400: 8 frames over 8.5 seconds",
    "CC-BY-NC 4.0: no commercial use; assume the same for everything trained from it",
)

#: By name. Papers: Mnih et al. 2015; Espeholt et al. 2018 (arXiv 1802.01561); Yarats et al. 2021 (arXiv 2107.09645);
#: Tran et al. 2018 (arXiv 1711.11248); Bertasius et al. 2021 (arXiv 2102.05095).
ARCHES = {
    "nature": EncoderArch("DQN's three convolutions (Mnih 2015)", "pictures", 64, 1, 512, 600_736, 36),
    "impala": EncoderArch("IMPALA's residual net (Espeholt 2018)", "pictures", 64, 1, 256, 622_144, 8),
    "drq": EncoderArch(
        "DrQ-v2's four convolutions, flat (Yarats 2021)", "pictures", 64, 1, 20_000, 28_640, 15, chosen=False
    ),
    "simple2dcnn": EncoderArch(
        "drq's convolutions per frame, then a GRU or the mean", "clips", 64, 8, 256, 1_265_334, 15
    ),
    "simple3dcnn": EncoderArch("four convolutions over space and time", "clips", 64, 8, 256, 1_246_688, 16),
    "r3d18": EncoderArch(
        "R3D-18 (Tran 2018)", "clips", 112, 16, 512, 33_166_272, 16, chosen=False, is_rgb=True, weights=_R3D18_FILE
    ),
    "timesformer": EncoderArch(
        "TimeSformer, base (Bertasius 2021)", "clips", 224, 8, 768, 121_258_752, 16, chosen=False, squares=((0, 16),),
        is_rgb=True, weights=_TIMESFORMER_FILE,
    ),
    "timesformer_tiny": EncoderArch(
        "the same, four layers of 192", "clips", 64, 8, 192, 2_573_760, 8, chosen=False, squares=((0, 8), (112, 16)),
        is_rgb=True,
    ),
}  # fmt: skip


def refusal(name: str, shape: Sequence[int]) -> FieldError | None:
    """Why the encoder `name` reads no observation of `shape` ([C, H, W], or [T, C, H, W]), and what would do; None: it
    does, or it is none of ours.
    """
    arch = ARCHES.get(name)
    if arch is None:
        return None
    if len(shape) not in {3, 4}:
        return FieldError("encoder.reads-no-numbers", arch=name, reads=arch.reads, shape=str(tuple(shape)))
    seen = "clips" if len(shape) == 4 else "pictures"
    if seen != arch.reads:
        others = " or ".join(other for other, it in ARCHES.items() if it.reads == seen)
        still = '"cameras" or "both" ("state" where the environment gives pictures itself)'
        way = '"clips"' if arch.reads == "clips" else still
        return FieldError("encoder.other-kind", arch=name, reads=arch.reads, seen=seen, way=way, others=others)
    channels, height, width = shape[-3:]
    if min(height, width) < arch.least:
        return FieldError("encoder.picture-too-small", arch=name, least=arch.least, height=height, width=width)
    square = arch.square(min(height, width))
    if height % square or width % square:
        lower = min(height, width) // square * square
        return FieldError(
            "encoder.squares", arch=name, square=square, height=height, width=width, lower=lower, upper=lower + square
        )
    if arch.is_rgb and channels % RGB:
        return FieldError("encoder.no-colours", arch=name, channels=channels)
    return None


def _how_to_get(arch: str) -> FieldError:
    """For a user who asks for pretrained weights and gives no file: which file, where from, and how it gets there."""
    if arch == AUTO:
        return FieldError("weights.which-encoder")
    if arch not in ARCHES:
        return FieldError("weights.no-file")
    published = ARCHES[arch].weights
    if published is None:
        having = " and ".join(name for name, it in ARCHES.items() if it.weights is not None)
        return FieldError("weights.none-published", arch=arch, having=having)
    return FieldError("weights.where", file=published.file, megabytes=published.megabytes, url=published.url)


class EncoderSettings(TrainingSettings):
    """The encoder that turns pictures into features; every observation other than a row of numbers has its own."""

    arch: str = Field(
        "auto", description="Name (see docs/algorithms.md); auto: nature for pictures, simple3dcnn for clips."
    )
    features: PositiveInt | None = Field(
        None, description="Number of features per picture, or per camera's clip; default: the encoder's own."
    )
    over_time: Literal["gru", "mean"] = Field(
        "gru", description="How simple2dcnn combines a clip's frames; mean is cheaper, but loses their order."
    )
    pretrained: bool = Field(
        False, description="Require weights from a file; without one, the error names the file to download."
    )
    weights: str | None = Field(
        None, description="Weights file: safetensors (or a folder of shards), or a .pth with only tensors."
    )
    weights_sha256: Sha256 | None = Field(
        None, description="Checksum of that file, filled in when a run begins; later files must match."
    )
    freeze: bool | None = Field(
        None,
        description="Do not train it: features are computed once and stored instead of frames; default: true if "
        "it comes from a file.",
    )
    lr_scale: NotNegative = Field(1.0, description="Factor on the encoder's learning rate; 0.1 suits one from a file.")

    @model_validator(mode="after")
    def _they_fit_together(self) -> Self:
        known = ARCHES.get(self.arch)
        if self.pretrained and self.weights is None:
            raise refused(("pretrained",), _how_to_get(self.arch), self.pretrained)
        if self.weights is not None and self.arch == AUTO:
            raise refused(("arch",), FieldError("encoder.weights-without-arch"), self.arch)
        if self.features is not None and known is not None and not known.chosen:
            error = FieldError("encoder.fixed-features", arch=self.arch, features=known.features, size=known.size)
            raise refused(("features",), error, self.features)
        return self

    @property
    def is_frozen(self) -> bool:
        """Whether it learns nothing."""
        return self.weights is not None if self.freeze is None else self.freeze


class Network(TrainingSettings):
    """The networks' shapes."""

    actor_hidden: Widths = Field((256, 256), description="Widths of the actor's hidden layers.")
    critic_hidden: Widths = Field((1024, 1024, 1024), description="Widths of each critic's hidden layers.")
    activation: Literal["relu", "tanh"] = Field("relu", description="Activation between plain layers.")
    critic_net: CriticNet = Field(
        "mlp",
        description="The critics' layers: mlp (plain), heads (plain, with one output layer per task) or residual "
        "(one block with layer normalisation per width in critic_hidden; widths must be equal).",
    )

    trunk: CountInt = Field(
        0,
        description="Size to which features are reduced before the plain layers (linear, layer normalisation, "
        "tanh, as in DrQ-v2), for sac, td3 and drqv2; 0: none.",
    )
    encoder: EncoderSettings = Field(EncoderSettings(), description="The encoder of pictures.")
    encoders: dict[str, str] = Field({}, description="Another arch by observation key, also for rows of numbers.")

    def freezes(self, key: str) -> bool:
        """Whether the encoder of `key`, which has one, learns nothing."""
        return key not in self.encoders and self.encoder.is_frozen

    def check_pictures(self, shape: Sequence[int] | None) -> None:
        """Errors: ValidationError where there is no encoder of a name, or where it cannot read pictures of `shape`, as
        far as settings tell that; None: they do not.
        """
        named = {("network", "encoders", key): name for key, name in self.encoders.items()}
        if self.encoder.arch != AUTO:
            named["network", "encoder", "arch"] = self.encoder.arch
        for place, name in named.items():
            try:
                checked(ENCODERS, name)
            except FieldError as error:
                raise refused(place, error, name) from None
        if shape is not None and "image" not in self.encoders:
            auto = AUTO_CLIPS if len(shape) == 4 else AUTO_PICTURES
            arch = auto if self.encoder.arch == AUTO else self.encoder.arch
            if (why := refusal(arch, shape)) is not None:
                raise refused(("network", "encoder", "arch"), why, arch)

    def findings(
        self, state_alone: str, sees: Literal["pictures", "none", "unknown"], usual: Mapping[str, Any]
    ) -> Iterator[SettingFinding]:
        """What is said of encoders, and does nothing: files and sums that nothing reads, and a frozen encoder in whose
        place another one reads the pictures. `state_alone`: the algorithm, where it reads the numbers of a state and
        nothing else. `sees`: what the policy sees, as far as settings tell that. `usual`: the algorithm's own.
        """
        encoder, others = self.encoder, self.encoders
        other = others.get("image") if sees == "pictures" else None
        found: dict[str, FieldError] = {}
        if encoder.weights is None and encoder.weights_sha256 is not None:
            found["weights_sha256"] = FieldError("weights.sum-without-file")
        if encoder.weights is None and encoder.freeze and other is not None and not state_alone:
            found["freeze"] = FieldError("encoder.freeze-of-other", arch=other)
        if encoder.weights is not None and state_alone:
            found["weights"] = FieldError("weights.of-state-learner", algorithm=state_alone)
        elif encoder.weights is not None and sees == "none":
            found["weights"] = FieldError("weights.without-pictures")
        elif encoder.weights is not None and other is not None:
            found["weights"] = FieldError("weights.of-other-encoder", arch=other)
        for name, error in found.items():
            yield SettingFinding(error, ("network", "encoder", name), getattr(encoder, name), loads=True)
        if (state_alone or sees == "none") and not others:
            for name, value in encoder.model_dump(exclude_defaults=True).items():
                if (name, value) not in usual.items():
                    yield SettingFinding("the policy sees no pictures, so nothing uses it", (f"encoder.{name}",))
            return
        if encoder.over_time != "gru" and {encoder.arch, *others.values()} <= {*ARCHES, AUTO} - {_OVER_TIME}:
            yield SettingFinding(f"only {_OVER_TIME} uses it: set encoder.arch to that", ("encoder.over_time",))
        if encoder.freeze and "image" in others:
            yield SettingFinding(f"{others['image']} reads image (network.encoders), and learns", ("encoder.freeze",))
        if encoder.is_frozen and encoder.lr_scale != 1 and not others:
            yield SettingFinding("the encoder is frozen and learns nothing", ("encoder.lr_scale",))

    @property
    def widest(self) -> int:
        """The widest hidden layer."""
        return max(*self.actor_hidden, *self.critic_hidden)


def licence_note(arch: str, weights: str | None) -> str | None:
    """The licence of the published weights of `arch`, in a sentence; None where there are none, or no `weights`."""
    published = ARCHES[arch].weights if arch in ARCHES else None
    if weights is None or published is None:
        return None
    return f"the licence of {published.file}, the published weights of {arch}: {published.licence}"
