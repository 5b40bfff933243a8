"""Errors and their catalogues: each identifier has one sentence, one class, and the fields that it is raised with."""

from __future__ import annotations

import ast
import errno
import re
import runpy
import string
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from orchestrator.errors import ConfigError

ROOT = Path(__file__).parents[2]
PACKAGES = ("orchestrator", "trainer", "syncd", "viewer")


@cache
def trees(package: str) -> list[tuple[str, ast.Module]]:
    return [
        (str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8")))
        for path in sorted((ROOT / package).rglob("*.py"))
    ]


def fields_of(sentence: str) -> set[str]:
    return {name.partition(".")[0].partition("[")[0] for _, name, _, _ in string.Formatter().parse(sentence) if name}


@cache
def sentences(package: str) -> dict[str, tuple[str, str]]:
    """Identifier → its class and its sentence."""
    path = ROOT / package / "errors.toml"
    tables = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    rows = [(name, kind, text) for kind, table in tables.items() for name, text in table.items()]
    assert len(rows) == len({name for name, _, _ in rows}), "an identifier stands in two classes"
    return {name: (kind, text) for name, kind, text in rows}


def made(package: str) -> Iterator[tuple[str, str, str, set[str] | None]]:
    """Where an error of the catalogue is made: place, class, identifier, fields (None: given as `**fields`)."""
    kinds = {kind for kind, _ in sentences(package).values()}
    for place, tree in trees(package):
        for node in ast.walk(tree):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None
            if name not in kinds:
                continue
            assert isinstance(node, ast.Call)
            where = f"{place}:{node.lineno}"
            first = node.args[0] if node.args else None
            ids = [first] if not isinstance(first, ast.IfExp) else [first.body, first.orelse]
            for chosen in ids:
                assert isinstance(chosen, ast.Constant), f"{where}: its identifier is no constant"
                names = {word.arg for word in node.keywords}
                yield where, str(name), str(chosen.value), None if None in names else {str(word) for word in names}


@pytest.mark.parametrize("package", PACKAGES)
def test_what_is_raised_is_in_the_catalogue_with_its_fields(package: str) -> None:
    known = sentences(package)
    for where, kind, name, fields in made(package):
        assert name in known, f"{where}: errors.toml has no {name}"
        assert kind == known[name][0], f"{where}: {name} is a {known[name][0]}"
        if fields is not None:
            assert fields == fields_of(known[name][1]), f"{where}: the sentence of {name} needs other fields"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_sentence_is_left_over(package: str) -> None:
    assert {name for _, _, name, _ in made(package)} == set(sentences(package))


@pytest.mark.parametrize("package", PACKAGES)
def test_identifiers_are_words_with_a_room(package: str) -> None:
    for name in sentences(package):
        room, dot, rest = name.partition(".")
        assert dot == ".", name
        assert (room + rest).replace("-", "").replace(".", "").isalnum(), name
        assert name == name.lower(), name


def test_the_made_page_has_every_identifier() -> None:
    page = runpy.run_path(str(ROOT / "docs/errors.py"))["page"]()
    for package in PACKAGES:
        section = page.split(f"## `{package}`")[1].split("\n## ")[0]
        assert re.findall(r"^\| `(\S+)` \|", section, re.MULTILINE) == list(sentences(package))


def test_an_error_is_told_although_its_catalogue_cannot_be_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: str) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("anchorleg.errors.catalogue", full)
    error = ConfigError("config.no-file", path="run.json")
    assert (error.id, str(error)) == ("config.no-file", "config.no-file: path run.json")
