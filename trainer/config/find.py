"""Suites, algorithms and encoders by name, and the settings of the first two.

A name is that of a file here (`ppo` is `trainer/algorithms/ppo.py`, `metaworld` is
`trainer/envs/suites/metaworld/suite.py`), of an entry point of an
installed package (`anchorleg.suites`, `.algorithms`, `.encoders`), or `package.module:Name`. The settings of our own
stand in `trainer/config/`; of others they are an entry point of the same name (`anchorleg.algorithms.settings`), or
what the class calls its `Settings`. Nothing is imported but what is asked for: a login node checks names without torch.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
import traceback
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, NamedTuple

from anchorleg.words import did_you_mean
from trainer.config.fields import TrainingSettings
from trainer.errors import FieldError


class Kind(NamedTuple):
    """Where things of one kind lie: their folder, the file in a folder of its own, how its line `class` begins, the
    entry points, and the module of our own settings.
    """

    folder: str
    file: str
    cls: str
    group: str
    settings: str = ""


SUITES = Kind("envs/suites", "suite", r"(Suite)(?::|\((?!Protocol\)))", "anchorleg.suites", "trainer.config.suites")
ALGORITHMS = Kind(
    "algorithms", "algorithm", r"(\w+)\(Algorithm\):", "anchorleg.algorithms", "trainer.config.algorithms"
)
ENCODERS = Kind("nets/encoders", "encoder", r"(Encoder)\((?!Protocol\))", "anchorleg.encoders")

#: So many letters of it are told.
_MOST_LETTERS = 300
_HERE = Path(__file__).parents[1]


@cache
def files_of(kind: Kind) -> dict[str, str]:
    """Name → `module:Class`, of those that lie here. A file beside them that has no such class is none of them.

    Told by its text: a login node cannot import what needs torch.
    """
    found = {}
    for path in sorted((_HERE / kind.folder).iterdir()):
        file = path / f"{kind.file}.py" if path.is_dir() else path
        text = file.read_text(encoding="utf-8") if file.suffix == ".py" and file.is_file() else ""
        if has_class := re.search(f"^class {kind.cls}", text, re.MULTILINE):
            parts = file.relative_to(_HERE).with_suffix("").parts
            found[path.stem] = f"{'.'.join(('trainer', *parts))}:{has_class[1]}"
    return found


def names(kind: Kind) -> list[str]:
    """All that can be asked for by one word."""
    return sorted({*files_of(kind), *_points(kind.group, tuple(sys.path))})


def checked(kind: Kind, name: str) -> str:
    """`name`, where it may be found. Errors: FieldError, with the nearest known name."""
    if ":" not in name and name not in files_of(kind) and name not in names(kind):
        word = kind.file
        there = names(kind)
        all_of_them = f"known here: {', '.join(there)}"
        near = did_you_mean(name, there, all_of_them)
        more = "" if near == all_of_them else f" ({all_of_them})"  # a near name need not be what was meant
        raise FieldError("plugin.unknown", word=word, name=name, near=near, more=more)
    return name


def find(kind: Kind, name: str) -> Any:
    """The class. Errors: FieldError, which says what is wrong with the name or the package that it is from."""
    return _class_of(kind, checked(kind, name))


def settings_of(kind: Kind, name: str) -> type[TrainingSettings]:
    """The class of its settings. Errors: FieldError, as `find`, also where there are no settings."""
    checked(kind, name)
    own = f"{kind.settings}:{name.capitalize()}" if name in files_of(kind) else None
    group = f"{kind.group}.settings"
    if own is None and name not in _points(group, tuple(sys.path)):
        found = getattr(_class_of(kind, name), "Settings", None)
    else:
        found = _loaded(kind, name, own, group)
    if not (isinstance(found, type) and issubclass(found, TrainingSettings)):
        raise FieldError("plugin.no-settings", word=kind.file, name=name)
    return found


def _class_of(kind: Kind, name: str) -> Any:
    return _loaded(kind, name, files_of(kind).get(name), kind.group)


@cache
def _points(group: str, path: tuple[str, ...]) -> dict[str, EntryPoint]:  # noqa: ARG001 - other folders have others
    """Those of installed packages, by name. Looking through all packages takes 10 ms."""
    return {point.name: point for point in entry_points(group=group)}


def _loaded(kind: Kind, name: str, own: str | None, group: str) -> Any:
    try:
        if own is not None or ":" in name:
            module, _, attribute = (own or name).partition(":")
            return getattr(importlib.import_module(module), attribute)
        return _points(group, tuple(sys.path))[name].load()
    except (Exception, SystemExit) as error:  # it may be anybody's
        why = error_location(error, __file__)
        raise FieldError("plugin.not-loaded", word=kind.file, name=name, why=why) from error


def error_location(error: BaseException, *callers: str) -> str:
    """An error of somebody else's code, as it is told: its kind, its first words, and the line that raised it, where
    that is in none of the files `callers`.
    """
    skipped = {importlib.__file__, importlib.metadata.__file__, *callers}
    lines = [
        line
        for line in traceback.extract_tb(error.__traceback__)
        if line.filename not in skipped and not line.filename.startswith("<frozen")
    ]
    place = f" ({lines[-1].filename}, line {lines[-1].lineno})" if lines else ""
    words = " ".join(str(error).split())
    words = words if len(words) <= _MOST_LETTERS else words[:_MOST_LETTERS] + "…"
    return f"{type(error).__name__}: {words}{place}" if words else f"{type(error).__name__}{place}"
