"""A picture that fits into a cell of a ring."""

from __future__ import annotations

import io
from typing import Any

from anchorleg.live.batches import MOST_HEADER_BYTES
from anchorleg.live.ring import MAX_PAYLOAD_BYTES

#: A tile of the page is not larger; a screen of a game is a third of it.
MOST_SIDE = 480
#: Tried in turn, then again at half the size.
_QUALITIES = (75, 60, 45, 30)
_MOST_BYTES = MAX_PAYLOAD_BYTES - MOST_HEADER_BYTES - 2


def jpeg_of(picture: Any) -> bytes:
    """`picture`, uint8 [H, W, 3], as JPEG. Errors: ValueError where it is none."""
    from PIL import Image  # noqa: PLC0415 - most that is shown are poses

    if picture.dtype != "uint8" or picture.ndim != 3 or picture.shape[2] != 3 or not picture.size:
        raise ValueError(f"a picture is {picture.dtype} {picture.shape}, not uint8 [height, width, 3]")
    image = Image.fromarray(picture)
    side = MOST_SIDE
    while True:
        image.thumbnail((side, side))
        for quality in _QUALITIES:
            out = io.BytesIO()
            image.save(out, "JPEG", quality=quality)
            if out.tell() <= _MOST_BYTES:
                return out.getvalue()
        side //= 2
