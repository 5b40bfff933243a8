"""A film made of pictures: an mp4 that browsers play, or a GIF.

Where one may go is known before a policy and its simulator are loaded, which takes seconds.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainer.errors import ConfigError, SaveError

#: uint8 [H, W, 3].
Pixels = npt.NDArray[np.uint8]
#: A rate that every player knows.
FRAMES_A_SECOND = 40
#: A GIF tells times in hundredths of a second, browsers slow down below two of them, and each picture is a file's size.
GIF_FPS = 20
#: A palette of its own for each picture: one for all would need all of them in memory.
_GIF_PALETTES = "split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1:dither=bayer"
_CODECS: dict[str, dict[str, Any]] = {
    ".mp4": {
        "codec": "libx264",
        "pix_fmt_out": "yuv420p",  # the only one that browsers and QuickTime play
        "quality": 7,
        "output_params": ["-movflags", "+faststart"],
    },
    ".gif": {"codec": "gif", "pix_fmt_out": "pal8", "quality": None, "output_params": ["-lavfi", _GIF_PALETTES]},
}
#: Of an mp4 of which single pictures are looked for. Nothing is told of later pictures, so the first is at second 0.
_SEEKABLE = ["-g", "2", "-bf", "0"]


def check_place(path: Path) -> None:
    """Errors: ConfigError for a path that cannot be a film's, or whose folder is not there: one made by mistake lies
    anywhere.
    """
    if path.suffix.lower() not in _CODECS or os.path.isdir(path):
        raise ConfigError("film.out-suffix", path=path)
    if not os.path.isdir(path.absolute().parent):
        raise ConfigError("film.no-folder", path=path, folder=path.absolute().parent)


@contextmanager
def film(
    path: Path,
    size: int | tuple[int, int],
    frames_a_second: int = FRAMES_A_SECOND,
    *,
    seekable: bool = False,
) -> Iterator[Callable[[Pixels], None]]:
    """Writes pictures of `size` (a side, or width and height) into `path`, an mp4 or, by its name's end, a GIF of at
    most 20 pictures a second. It appears when the context ends well, whole or not at all. `seekable`: every second
    picture of an mp4 stands for itself, which makes it several times as large.

    Errors: ConfigError where there is no ffmpeg; SaveError where it cannot be written.
    """
    import imageio_ffmpeg

    kind = path.suffix.lower()
    every = max(1, math.ceil(frames_a_second / GIF_FPS)) if kind == ".gif" else 1
    codec = _CODECS[kind]
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{kind}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        open(temporary, "xb").close()  # ffmpeg has too many words for a folder that cannot be written
    except OSError as error:
        raise SaveError("output.unwritable-file", path=path, why=error.strerror) from None
    writer = imageio_ffmpeg.write_frames(
        str(temporary),
        (size, size) if isinstance(size, int) else size,
        fps=frames_a_second / every,
        pix_fmt_in="rgb24",
        macro_block_size=2,
        ffmpeg_log_level="quiet",  # its lines for a full disk are six; ours is one
        **{**codec, "output_params": [*codec["output_params"], *(_SEEKABLE if seekable else [])]},
    )
    shown = 0

    def show(picture: Pixels) -> None:
        nonlocal shown
        if shown % every == 0:
            writer.send(picture)
        shown += 1

    try:
        try:
            writer.send(None)
        except (OSError, RuntimeError) as error:
            raise ConfigError("film.no-ffmpeg", why=error) from None
        yield show
        writer.close()
        if _frames_in(temporary) != -(-shown // every):  # ffmpeg's end does not say whether all reached the disk
            raise SaveError("film.short", path=path)
        os.replace(temporary, path)
    except OSError as error:  # a full disk ends ffmpeg, and its pipe breaks
        raise SaveError("film.unwritten", path=path, why=error.strerror or "ffmpeg ended") from None
    finally:
        writer.close()
        temporary.unlink(missing_ok=True)


def _frames_in(path: Path) -> int:
    """How many frames can be read from a film; 0 where it is none."""
    import imageio_ffmpeg

    try:
        return int(imageio_ffmpeg.count_frames_and_secs(str(path))[0])
    except RuntimeError:
        return 0
