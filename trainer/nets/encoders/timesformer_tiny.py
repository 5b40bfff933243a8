"""TimeSformer with four layers of 192: small enough to be trained from nothing."""

from __future__ import annotations

from typing import ClassVar

from trainer.nets.encoders import timesformer


class Encoder(timesformer.Encoder):
    """As the base one; squares are of 8 by 8 pixels where pictures are smaller than 112, else of 16 by 16."""

    NAME: ClassVar[str] = "timesformer_tiny"
    WIDTH: ClassVar[int] = 192
    LAYERS: ClassVar[int] = 4
    HEADS: ClassVar[int] = 3
