"""`trainer demos import`: films and other people's data sets, decoded once."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from anchorleg.files import read_regular
from anchorleg.printable import printable
from anchorleg.words import counted
from trainer.demos.films import SUFFIXES, Film, Frame
from trainer.demos.manifest import MAX_EPISODE_BYTES, DemoEpisode, DemosManifest, DemoSource
from trainer.demos.store import Demos, DemosWriter
from trainer.envs.pictures import COLOURS
from trainer.envs.spaces import IMAGE
from trainer.errors import ConfigError

#: How far it is: (episodes that are there, all of them).
Progress = Callable[[int, int], None]
Say = Callable[[str], None]

#: The one camera of a film.
FILMED = "film"
#: More files than this are no folder of demonstrations.
_MOST_FILMS = 100_000
#: Where a folder says its licence: the first line of one of these.
_LICENCES = ("LICENSE", "LICENSE.txt", "LICENCE", "LICENCE.txt", "LICENSE.md")
_NAMED_LICENCE = re.compile(r"^license:\s*['\"]?([\w.-]{1,80})", re.MULTILINE)
_README = 4096
_WORDS = 200


def films_in(folder: Path) -> list[str]:
    """The films below `folder`, by their paths in it, sorted. Errors: ConfigError where there are none."""
    if not folder.is_dir():
        raise ConfigError(f"{folder} is no folder; give one with films, or a LeRobotDataset's")
    names = sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.is_file() and not path.is_symlink()
    )
    for name in names:
        if name.encode(errors="replace").decode() != name:  # no JSON could say it
            raise ConfigError(f"{folder}: the name {name!a} is not UTF-8; rename this film")
    if not names:
        raise ConfigError(f"there is no film in {folder}; those end in {', '.join(sorted(SUFFIXES))}")
    if len(names) > _MOST_FILMS:
        raise ConfigError(f"{folder} has {len(names):,} films; at most {_MOST_FILMS:,} are taken at once")
    return names


def import_films(folder: Path, out: Path, size: int, fps: float | None, progress: Progress, say: Say) -> Demos:
    """Each film below `folder` as an episode of one camera, `size` pixels a side, `fps` pictures a second (None: its
    own). What `out` has of it already stays.

    Errors: FilmError for one that cannot be read; ConfigError; SaveError.
    """
    names = films_in(folder)
    files = [(name, (folder / name).stat().st_size) for name in names]
    source = DemoSource(
        kind="films", name=folder.name, asked=asked(files=files, size=size, fps=fps), licence=licence_in(folder)
    )
    plan = DemosManifest(source=source, cameras=(FILMED,), frame=(COLOURS, size, size))
    writer = DemosWriter(out, plan)
    for number in range(writer.done, len(names)):
        progress(number, len(names))
        with Film(folder / names[number], size, fps) as film:
            frames = taken(names[number], film, size)
            if film.was_cut:
                whole = f" of its {film.facts.seconds:.1f}" if film.facts.seconds else ""
                say(f"{names[number]} is cut short: {film.second:.1f}{whole} s could be read, and are taken")
            episode = DemoEpisode(name=names[number], frames=len(frames), fps=film.fps, was_cut=film.was_cut)
        writer.add(episode, {IMAGE: frames})
    progress(len(names), len(names))
    return writer.finish()


def taken(name: str, film: Film, size: int) -> npt.NDArray[np.uint8]:
    """All frames of `film`, [F, 3, size, size]. Errors: FilmError; ConfigError where there are too many."""
    most = MAX_EPISODE_BYTES // (COLOURS * size * size)
    frames: list[Frame] = []
    for frame in film:
        if len(frames) == most:
            raise ConfigError(
                f"{name} has more than {most:,} frames, and no episode may: lower --fps (it has {film.fps:g}) or "
                "--size, or cut it into several"
            )
        frames.append(frame)
    return np.stack(frames)


def asked(**of: Any) -> str:
    """A digest (sha256, hex) of what was asked for: another wish is another folder."""
    return hashlib.sha256(json.dumps(of, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def licence_in(folder: Path) -> str | None:
    """What a folder says of its licence, in a line: in the head of its README, as data sets do, or in a file."""
    named = _NAMED_LICENCE.search(_beginning(folder / "README.md"))
    if named is not None:
        return named[1]
    lines = (_beginning(folder / name).strip().partition("\n")[0] for name in _LICENCES)
    return next((printable(line, _WORDS) for line in lines if line), None)


def _beginning(path: Path) -> str:
    try:
        return read_regular(path, _README).decode("utf-8", "replace")
    except OSError:
        return ""


def summary(demos: Demos) -> str:
    """A line."""
    manifest = demos.manifest
    actions = "with actions" if manifest.spaces is not None else "without actions"
    licence = f"; its licence: {manifest.source.licence}" if manifest.source.licence else "; no licence is told"
    seen = counted(len(manifest.cameras), "camera")
    return (
        f"{counted(len(manifest.episodes), 'episode')}, {counted(manifest.num_frames, 'frame')} of {seen}, "
        f"{manifest.frame[1]} by {manifest.frame[2]}, {actions}{licence if manifest.source.kind != 'recorded' else ''}"
    )


def as_json(demos: Demos) -> Mapping[str, Any]:
    """The same for machines."""
    manifest = demos.manifest
    disk = sum(block.bytes for block in manifest.blocks)
    return {
        "folder": str(demos.folder),
        "digest": manifest.digest,
        "episodes": len(manifest.episodes),
        "frames": manifest.num_frames,
        "frame": list(manifest.frame),
        "cameras": list(manifest.cameras),
        "has_actions": manifest.spaces is not None,
        "licence": manifest.source.licence,
        "cut": [episode.name for episode in manifest.episodes if episode.was_cut],
        "bytes": disk,
        "bytes_a_frame": round(disk / max(1, manifest.num_frames), 1),
    }


def side_by_side(cameras: Sequence[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    """[F, 3, H, W] of each camera → [F, 3 · cameras, H, W]."""
    return cameras[0] if len(cameras) == 1 else np.concatenate(cameras, axis=1)
