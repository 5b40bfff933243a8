"""Films read frame by frame, through a pipe, by the FFmpeg that imageio-ffmpeg brings. Nothing else of a film is kept.

A film is from anywhere: FFmpeg is told to open this one file and no other, whatever the file says, and no picture
larger than 8K; what says nothing for a minute is ended.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

import numpy as np
import numpy.typing as npt

from anchorleg.printable import printable
from trainer.errors import ConfigError

#: [3, size, size]: red, green and blue.
Frame = npt.NDArray[np.uint8]

#: What is taken for a film in a folder.
SUFFIXES = frozenset({".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".gif", ".mpg", ".mpeg", ".ts", ".ogv", ".wmv"})
#: A frame takes milliseconds; a film on a slow network folder must find its end before it begins.
SILENCE_S = 60.0
#: Containers. A list of files to play (m3u8, concat) is none: it would open what its writer likes.
_CONTAINERS = "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,gif,mpeg,mpegts,ogg,asf"
_MOST_PIXELS = 7680 * 4320
#: What FFmpeg says where a packet is not all there, because the file has ended before it.
_ENDED_EARLY = ("corrupt input packet", "partial file")
#: Lines of its own: a title says what its writer likes.
_CLOCK = re.compile(r"^\s*Duration: (\d+):(\d+):(\d+(?:\.\d+)?)", re.MULTILINE)
_RATE = re.compile(r"^\s*Stream #\d+:\d+.*?: Video:.*?(\d+(?:\.\d+)?)(k?) (?:fps|tbr)", re.MULTILINE)
#: What may go on when the pictures have ended; a film's length is that of the longest.
_BESIDE = re.compile(r"^\s*Stream #\d+:\d+.*?: (?:Audio|Subtitle):", re.MULTILINE)
_WORDS = 200


class FilmError(ConfigError):
    """This film cannot be read, and where that was found: its name and the second. It says nothing of others."""


@dataclass(frozen=True)
class FilmFacts:
    """What a film says of itself: pictures a second, and how long they last (None: it does not say, or has sound)."""

    fps: float
    seconds: float | None


def facts_of(path: Path) -> FilmFacts:
    """What the film at `path` says of itself. Errors: FilmError where it is none; ConfigError without FFmpeg."""
    command = [_ffmpeg(), "-nostdin", "-hide_banner", *_input(path)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=SILENCE_S, check=False)
    except subprocess.TimeoutExpired:
        raise FilmError(f"{path}: FFmpeg said nothing about it for {SILENCE_S:.0f} s; is the disk there?") from None
    except OSError as error:
        raise _not_run(error) from None
    said = done.stderr.decode(errors="replace")
    rate, clock = _RATE.search(said), _CLOCK.search(said)
    fps = 0.0 if rate is None else float(rate[1]) * (1000 if rate[2] else 1)
    if not fps:
        raise FilmError(f"{path} is no film that can be read, from its second 0 on ({_cause(said)}); leave it out")
    seconds = None
    if clock is not None and _BESIDE.search(said) is None:
        hours, minutes, rest = clock.groups()
        seconds = 3600 * int(hours) + 60 * int(minutes) + float(rest)
    return FilmFacts(fps, seconds)


class Film:
    """The film at `path` from its second `start_s` on, each picture cut to its middle square and brought to `size`
    pixels a side by area. `fps`: so many pictures a second; None: its own ones, each.

    It is a context. `was_cut` is true where the file ended before the film did, which is known behind its last frame.
    Errors: FilmError; ConfigError without FFmpeg.
    """

    def __init__(self, path: Path, size: int, fps: float | None = None, start_s: float = 0.0) -> None:
        self.path, self.size, self.start_s = path, size, start_s
        self.facts = facts_of(path)
        self.fps = fps or self.facts.fps
        self.was_cut = False
        self._read = 0
        rate = [] if fps is None else [f"fps={fps!r}"]
        picture = [f"scale={size}:{size}:force_original_aspect_ratio=increase:flags=area", "format=rgb24"]
        seek = ["-ss", f"{start_s:.6f}"] if start_s else []
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`; a full pipe would stop it
        command = [
            *(_ffmpeg(), "-nostdin", "-hide_banner", "-loglevel", "error", "-xerror", "-err_detect", "explode"),
            *(*seek, *_input(path), "-map", "0:v:0", "-vf", ",".join([*rate, *picture, f"crop={size}:{size}"])),
            *("-fps_mode", "passthrough", "-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:1"),
        ]
        read, write = os.pipe()
        self._pipe = read
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=write, stderr=self._words)
        except OSError as error:
            os.close(read)
            self._words.close()
            raise _not_run(error) from None
        finally:
            os.close(write)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End FFmpeg. May be called twice."""
        if not self._words.closed:
            self._process.kill()
            self._process.wait()
            os.close(self._pipe)
            self._words.close()

    def __iter__(self) -> Iterator[Frame]:
        """Its frames, in order. Errors: FilmError, with the second, where one cannot be read."""
        size = 3 * self.size * self.size
        while raw := self._bytes(size):
            self._read += 1
            pixels = np.frombuffer(raw, np.uint8).reshape(self.size, self.size, 3)
            yield np.ascontiguousarray(pixels.transpose(2, 0, 1))
        code = self._process.wait()
        self._words.seek(0)
        said = self._words.read().decode(errors="replace")
        self.was_cut = any(words in said for words in _ENDED_EARLY) if code else self._is_short()
        if (code and not self.was_cut) or not self._read:
            raise FilmError(
                f"{self.path} cannot be read from its second {self.second:.1f} on ({_cause(said)}); leave it out"
            )

    @property
    def second(self) -> float:
        """Of the film, behind the last frame that was read."""
        return self.start_s + self._read / self.fps

    def _is_short(self) -> bool:
        """Whether more than a second, and two frames, of what it says are not there."""
        seconds = self.facts.seconds
        return seconds is not None and seconds - self.second > max(1.0, 2 / self.fps)

    def _bytes(self, size: int) -> bytes:
        """The next `size` bytes; b"" behind the last. Errors: FilmError where FFmpeg is silent."""
        parts, missing = [], size
        while missing:
            if not select.select([self._pipe], [], [], SILENCE_S)[0]:
                raise FilmError(
                    f"{self.path}: FFmpeg gave nothing for {SILENCE_S:.0f} s at its second {self.second:.1f}"
                )
            part = os.read(self._pipe, missing)
            if not part:
                return b""
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)


def _input(path: Path) -> list[str]:
    limits = ["-protocol_whitelist", "file", "-format_whitelist", _CONTAINERS, "-max_pixels", str(_MOST_PIXELS)]
    return [*limits, "-threads", "1", "-i", f"file:{path.absolute()}"]


def _ffmpeg() -> str:
    """Errors: ConfigError where there is none."""
    import imageio_ffmpeg  # noqa: PLC0415 - looks for its ffmpeg when it is loaded

    try:
        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except RuntimeError as error:
        raise _not_run(error) from None


def _not_run(error: Exception) -> ConfigError:
    """What is said where FFmpeg is not there, or is no program."""
    return ConfigError(
        f"ffmpeg cannot be run here ({error}); unset IMAGEIO_FFMPEG_EXE, "
        "or pip install --force-reinstall imageio-ffmpeg"
    )


def _cause(said: str) -> str:
    """The first thing of FFmpeg's that says what is wrong, harmless."""
    lines = [line for line in said.splitlines() if line.startswith("[") and "misdetection" not in line]
    return printable(re.sub(r"^\[[^]]*\] ", "", lines[0]) if lines else "it holds no pictures", _WORDS)
