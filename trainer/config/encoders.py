"""The encoders of pictures and clips that stand in `trainer/nets/encoders/`: what each reads and makes, and where its
published weights come from. A login node reads this: no torch. Figures of size are checked against the nets by
`tests/unit/trainer/test_encoder_settings.py`, costs are measured by `bench/encoders.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

#: What reads pictures, and clips, where nobody says what.
AUTO, AUTO_PICTURES, AUTO_CLIPS = "auto", "nature", "simple3dcnn"
#: Channels of a camera that sees colours.
RGB = 3


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
    "Kinetics-400: 16 frames at 15 a second",
    "none of its own is stated: torchvision's code is BSD, and its authors warn that weights may bear the terms of the "
    "data that they were trained on (Kinetics-400)",
)
_TIMESFORMER_FILE = PublishedWeights(
    "pytorch_model.bin",
    "https://huggingface.co/facebook/timesformer-base-finetuned-k400/resolve/main/pytorch_model.bin",
    486,
    "Kinetics-400: 8 frames over 8.5 seconds",
    "CC-BY-NC 4.0: not for commercial use, and whatever is trained from it should be taken to bear the same",
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
        "drq's convolutions a frame, then a GRU or the mean", "clips", 64, 8, 256, 1_265_334, 15
    ),
    "simple3dcnn": EncoderArch("four convolutions over space and time", "clips", 64, 8, 256, 1_246_688, 16),
    "r3d18": EncoderArch(
        "R3D-18 (Tran 2018)", "clips", 112, 16, 512, 33_166_272, 16, chosen=False, is_rgb=True, weights=_R3D18_FILE
    ),
    "timesformer": EncoderArch(
        "TimeSformer, base (Bertasius 2021)",
        "clips",
        224,
        8,
        768,
        121_258_752,
        16,
        chosen=False,
        squares=((0, 16),),
        is_rgb=True,
        weights=_TIMESFORMER_FILE,
    ),
    "timesformer_tiny": EncoderArch(
        "the same, four layers of 192",
        "clips",
        64,
        8,
        192,
        2_573_760,
        8,
        chosen=False,
        squares=((0, 8), (112, 16)),
        is_rgb=True,
    ),
}


def refusal(name: str, shape: Sequence[int]) -> str | None:
    """Why the encoder `name` reads no observation of `shape` ([C, H, W], or [T, C, H, W]), and what would do; None: it
    does, or it is none of ours.
    """
    arch = ARCHES.get(name)
    if arch is None:
        return None
    if len(shape) not in {3, 4}:
        return f"{name} reads {arch.reads}, and not numbers of shape {tuple(shape)}: name no encoder for them"
    seen = "clips" if len(shape) == 4 else "pictures"
    if seen != arch.reads:
        others = " or ".join(other for other, it in ARCHES.items() if it.reads == seen)
        still = '"cameras" or "both" ("state" where the environment gives pictures itself)'
        way = '"clips"' if arch.reads == "clips" else still
        return (
            f"{name} reads {arch.reads}, and these are {seen}: set env.observation to {way}, or network.encoder.arch "
            f"to {others}"
        )
    channels, height, width = shape[-3:]
    if min(height, width) < arch.least:
        return (
            f"{name} reads pictures of {arch.least} by {arch.least} pixels or more, and these have {height} by "
            f"{width}: raise env.image_size"
        )
    square = arch.square(min(height, width))
    if height % square or width % square:
        lower = min(height, width) // square * square
        return (
            f"{name} cuts pictures into squares of {square} by {square} pixels, and {height} by {width} cannot be: set "
            f"env.image_size to {lower} or {lower + square}"
        )
    if arch.is_rgb and channels % RGB:
        return f"{name} reads colours, {RGB} channels a camera, and these pictures have {channels}"
    return None


def mistake(arch: str, *, pretrained: bool, weights: str | None, features: int | None) -> tuple[str, str] | None:
    """(field, sentence) of what does not fit together among the settings of an encoder."""
    known = ARCHES.get(arch)
    if pretrained and weights is None:
        return "pretrained", how_to_get(arch)
    if weights is not None and arch == AUTO:
        return "arch", "name the encoder that the file of weights is of"
    if features is not None and known is not None and not known.chosen:
        return "features", (
            f"{arch} makes as many as it does, {known.features} of a camera of {known.size} by {known.size}: leave it "
            "out (network.trunk brings features down to fewer)"
        )
    return None


def how_to_get(arch: str) -> str:
    """What a user is told who wants pretrained weights and gives no file: which, from where, and how it gets there."""
    if arch == AUTO:
        return "name the encoder (network.encoder.arch), and give the file of its weights (network.encoder.weights)"
    if arch not in ARCHES:
        return "give the file of its weights (network.encoder.weights)"
    published = ARCHES[arch].weights
    if published is None:
        having = " and ".join(name for name, it in ARCHES.items() if it.weights is not None)
        return (
            f"nobody publishes weights of {arch} ({having} have some): leave it out, or make a file by `trainer demos "
            "fit` and give it (network.encoder.weights)"
        )
    return (
        f"nothing is downloaded here, as nodes of clusters seldom have internet: fetch {published.file} "
        f"({published.megabytes} MB) on your laptop from {published.url}, copy it to the cluster (rsync "
        f"{published.file} LOGIN_NODE:weights/) and give its path there (network.encoder.weights)"
    )


def told(arch: str, weights: str | None) -> str | None:
    """What whoever trains with a file should know of its licence; None where nothing is published for this encoder."""
    published = ARCHES[arch].weights if arch in ARCHES else None
    if weights is None or published is None:
        return None
    return f"the licence of {published.file}, the published weights of {arch}: {published.licence}"
