"""A film made of pictures: an mp4 that browsers play, or a GIF.

Where one may go is known before a policy and its simulator are loaded, which takes seconds.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
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
#: Of an mp4: the only pixels that browsers and QuickTime play.
_PIXELS = {".mp4": "yuv420p", ".gif": "pal8"}
#: Of an mp4 of which single pictures are looked for. Nothing is told of later pictures, so the first is at second 0.
_SEEKABLE = {"g": "2", "bf": "0"}


def check_place(path: Path) -> None:
    """Errors: ConfigError for a path that cannot be a film's, or whose folder is not there: one made by mistake lies
    anywhere.
    """
    if path.suffix.lower() not in _PIXELS or os.path.isdir(path):
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

    Errors: SaveError where it cannot be written.
    """
    import av

    kind = path.suffix.lower()
    every = max(1, math.ceil(frames_a_second / GIF_FPS)) if kind == ".gif" else 1
    width, height = (size, size) if isinstance(size, int) else size
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{kind}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        open(temporary, "xb").close()
    except OSError as error:
        raise SaveError("output.unwritable-file", path=path, why=error.strerror) from None
    shown = 0
    try:
        with av.open(str(temporary), "w", options={"movflags": "+faststart"} if kind == ".mp4" else {}) as container:
            stream: Any = container.add_stream(
                {".mp4": "libx264", ".gif": "gif"}[kind],
                rate=Fraction(frames_a_second, every),
                options={"crf": "15", **(_SEEKABLE if seekable else {})} if kind == ".mp4" else {},
            )
            even = 2 if kind == ".mp4" else 1
            stream.width, stream.height, stream.pix_fmt = width + width % even, height + height % even, _PIXELS[kind]
            palettes = _palettes(width, height, Fraction(every, frames_a_second)) if kind == ".gif" else None

            def show(picture: Pixels) -> None:
                nonlocal shown
                if shown % every == 0:
                    frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
                    frame.pts, frame.time_base = shown // every, Fraction(every, frames_a_second)
                    if palettes is None:
                        frame = frame.reformat(stream.width, stream.height, stream.pix_fmt)
                    else:
                        palettes.push(frame)
                        frame = palettes.pull()
                    container.mux(stream.encode(frame))
                shown += 1

            yield show
            container.mux(stream.encode())
        if _frames_in(temporary) != -(-shown // every):
            raise SaveError("film.short", path=path)
        os.replace(temporary, path)
    except (OSError, av.FFmpegError) as error:
        raise SaveError("film.unwritten", path=path, why=error.strerror or error) from None
    finally:
        temporary.unlink(missing_ok=True)


def with_words(picture: Pixels, words: str) -> Pixels:
    """`picture` with `words` at its foot, in smaller letters if they would be too wide."""
    from PIL import Image, ImageDraw, ImageFont  # comes with matplotlib

    image = Image.fromarray(picture)
    draw, size = ImageDraw.Draw(image), max(10, image.height // 24)
    while size > 1 and draw.textlength(words, ImageFont.load_default(size)) > image.width - 2 * size:
        size -= 1
    font, foot = ImageFont.load_default(size), (size, image.height - size)
    draw.text(foot, words, "white", font, anchor="ls", stroke_width=1 + size // 12, stroke_fill="black")
    return np.array(image)


def _palettes(width: int, height: int, time_base: Fraction) -> Any:
    """Give each picture a palette of its own: one for all would need all of them in memory."""
    import av.filter

    graph: Any = av.filter.Graph()
    source = graph.add_buffer(width=width, height=height, format="rgb24", time_base=time_base)
    split, palette = graph.add("split"), graph.add("palettegen", "stats_mode=single")
    used, sink = graph.add("paletteuse", "new=1:dither=bayer"), graph.add("buffersink")
    source.link_to(split)
    split.link_to(palette, 0, 0)
    split.link_to(used, 1, 0)
    palette.link_to(used, 0, 1)
    used.link_to(sink)
    graph.configure()
    return graph


def _frames_in(path: Path) -> int:
    """How many frames can be read from a film; 0 where it is none."""
    import av

    try:
        with av.open(str(path)) as container:
            return sum(1 for packet in container.demux(video=0) if packet.size)
    except (av.FFmpegError, IndexError):
        return 0
