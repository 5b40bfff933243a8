"""`trainer demos import` of films, each decoded once by PyAV (the extra `video`) into frames of one size.

A film is from anywhere: FFmpeg is told to open this one file and no other, whatever the file says, and no picture
larger than 8K.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from anchorleg.files import read_regular
from anchorleg.words import printable
from trainer.demos.store import MAX_EPISODE_BYTES, DemoEpisode, Demos, DemosManifest, DemoSource, DemosWriter
from trainer.envs.pictures import COLOURS
from trainer.envs.spaces import IMAGE
from trainer.errors import ConfigError

#: [3, size, size]: red, green and blue.
Frame = npt.NDArray[np.uint8]
#: How far it is: (episodes that are there, all of them).
Progress = Callable[[int, int], None]
Say = Callable[[str], None]

#: What is taken for a film in a folder.
SUFFIXES = frozenset({".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".gif", ".mpg", ".mpeg", ".ts", ".ogv", ".wmv"})
_OPTIONS = {
    "protocol_whitelist": "file",
    # A list of files to play (m3u8, concat) is no container: it would open what its writer likes.
    "format_whitelist": "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,gif,mpeg,mpegts,ogg,asf",
    "max_pixels": str(7680 * 4320),
    "err_detect": "explode",  # a damaged picture is none
    "threads": "1",
}
#: What is sought begins so much earlier: pictures may be kept in another order than they are shown in.
_EARLIER_S = 1.0
#: The one camera of a film.
FILMED = "film"
#: Where a folder says its licence: the first line of one of these.
_LICENCES = ("LICENSE", "LICENSE.txt", "LICENCE", "LICENCE.txt", "LICENSE.md")
_NAMED_LICENCE = re.compile(r"^license:\s*['\"]?([\w.-]{1,80})", re.MULTILINE)
_README_BYTES = 4096
#: Characters of others' words in a sentence of ours.
WORDS = 200


class FilmError(ConfigError):
    """This film cannot be read, and where that was found: its name and the second. It says nothing of others."""


class Film:
    """The film at `path`, each picture brought to `size` pixels a side by area and cut to its middle square. `fps`: so
    many pictures a second; None: its own ones, each.

    It is a context. Behind the last frame, `second` is the film's, and `was_cut` says that the file ended before the
    film did. `seconds`: how long it says it is; None: it does not say. Errors: FilmError; ModuleNotFoundError.
    """

    def __init__(self, path: Path, size: int, fps: float | None = None) -> None:
        import av

        self._path, self._size, self._every, self._errors = path, size, fps, av.FFmpegError
        self.was_cut, self.second = False, 0.0
        try:
            self._container = av.open(f"file:{path.absolute()}", options=_OPTIONS, metadata_errors="replace")
        except av.FFmpegError as error:
            raise self._unread(error) from None
        self._stream = cast("Any", next(iter(self._container.streams.video), None))
        rate = self._stream and (self._stream.average_rate or self._stream.guessed_rate)
        if not rate:
            self.close()
            raise self._unread("it holds no pictures")
        self._rate = float(rate)
        self.fps = fps or self._rate
        self.seconds: float | None = None
        if self._stream.duration:
            self.seconds = float(self._stream.duration * self._stream.time_base)
        elif self._container.duration and len(self._container.streams) == 1:  # sound may go on longer
            self.seconds = self._container.duration / 1e6

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """May be called twice."""
        self._container.close()

    def frames(self, start_s: float = 0.0) -> Iterator[Frame]:
        """Its frames from a second on, in order; from 0 on once. Errors: FilmError where one cannot be read."""
        before, shown = None, 0
        for picture in self._pictures(start_s):
            if self._every is None:
                yield self._frame(picture)
                continue
            while before is not None and shown < self._before(self.second - 1 / self._rate):
                yield self._frame(before)
                shown += 1
            before = picture
        while before is not None and shown < max(1, self._before(self.second)):
            yield self._frame(before)
            shown += 1
        missing_s = (self.seconds or 0.0) - self.second
        self.was_cut |= missing_s > max(1.0, 2 / self._rate)

    def _before(self, second: float) -> int:
        """How many of `fps` pictures a second come before `second`."""
        return math.floor(second * self.fps + 0.5)

    def _pictures(self, start_s: float) -> Iterator[Any]:
        stream = self._stream
        first_s, unit_s = float((stream.start_time or 0) * stream.time_base), float(stream.time_base)
        try:
            if start_s:
                self._container.seek(int((max(0.0, start_s - _EARLIER_S) + first_s) / unit_s), stream=stream)
            count = 0
            for packet in self._container.demux(stream):
                self.was_cut |= packet.is_corrupt
                for picture in stream.decode(None if self.was_cut else packet):
                    at = count / self._rate if picture.pts is None else picture.pts * unit_s - first_s
                    count, self.second = count + 1, at + 1 / self._rate
                    if at >= start_s:
                        yield picture
                if self.was_cut:
                    break
        except self._errors as error:
            raise self._unread(error) from None
        if not count:
            raise self._unread("it holds no pictures")

    def _frame(self, picture: Any) -> Frame:
        shortest = min(picture.width, picture.height)
        width, height = (
            max(self._size, round(side * self._size / shortest)) for side in (picture.width, picture.height)
        )
        pixels = picture.reformat(width, height, "rgb24", interpolation="AREA").to_ndarray()
        top, left = (height - self._size) // 2, (width - self._size) // 2
        square = pixels[top : top + self._size, left : left + self._size]
        return np.ascontiguousarray(np.rot90(square, picture.rotation // 90).transpose(2, 0, 1))

    def _unread(self, cause: object) -> FilmError:
        words = printable(str(getattr(cause, "strerror", cause)), WORDS)
        if not self.second:
            return FilmError("film.unreadable", path=self._path, why=words)
        return FilmError("film.cut", path=self._path, second=self.second, why=words)


def films_in(folder: Path) -> list[str]:
    """The films below `folder`, by their paths in it, sorted. Errors: ConfigError where there are none."""
    if not folder.is_dir():
        raise ConfigError("demos.no-folder", folder=folder)
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.is_file() and not path.is_symlink()
    )
    for name in names:
        if name.encode(errors="replace").decode() != name:  # no JSON could say it
            raise ConfigError("demos.name-not-utf8", folder=folder, name=ascii(name))
    if not names:
        raise ConfigError("demos.no-films", folder=folder, suffixes=", ".join(sorted(SUFFIXES)))
    return names


def import_films(folder: Path, out: Path, size: int, fps: float | None, progress: Progress, say: Say) -> Demos:
    """Each film below `folder` as an episode of one camera, `size` pixels a side, `fps` pictures a second (None: its
    own). What `out` has of it already stays.

    Errors: FilmError for one that cannot be read; ConfigError; SaveError; ModuleNotFoundError without PyAV.
    """
    names = films_in(folder)
    files = [(name, (folder / name).stat().st_size) for name in names]
    asked = digest_of(files=files, size=size, fps=fps)
    source = DemoSource(kind="films", name=folder.name, asked=asked, licence=licence_in(folder))
    writer = DemosWriter(out, DemosManifest(source=source, cameras=(FILMED,), frame=(COLOURS, size, size)))
    most = MAX_EPISODE_BYTES // (COLOURS * size * size)
    for number in range(writer.done, len(names)):
        name = names[number]
        progress(number, len(names))
        with Film(folder / name, size, fps) as film:
            frames: list[Frame] = []
            for frame in film.frames():
                if len(frames) == most:
                    raise ConfigError("demos.film-too-long", name=name, most=most, fps=film.fps)
                frames.append(frame)
            if film.was_cut:
                whole = f" of its {film.seconds:.1f}" if film.seconds else ""
                say(f"{name} is cut short: {film.second:.1f}{whole} s could be read, and are taken")
            episode = DemoEpisode(name=name, frames=len(frames), fps=film.fps, was_cut=film.was_cut)
        writer.add(episode, {IMAGE: np.stack(frames)})
    progress(len(names), len(names))
    return writer.finish()


def digest_of(**asked: Any) -> str:
    """sha256 (hex) of what was asked for: another wish is another folder."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def licence_in(folder: Path) -> str | None:
    """What a folder says of its licence, in a line: in the head of its README, as data sets do, or in a file."""
    named = _NAMED_LICENCE.search(_beginning(folder / "README.md"))
    if named is not None:
        return named[1]
    lines = (_beginning(folder / name).strip().partition("\n")[0] for name in _LICENCES)
    return next((printable(line, WORDS) for line in lines if line), None)


def _beginning(path: Path) -> str:
    try:
        return read_regular(path, _README_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
