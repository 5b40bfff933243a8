"""A config file as values: JSON, or YAML where the name ends in `.yaml` or `.yml`.

YAML as its version 1.2 has it (yaml.org/spec/1.2.2, chapter 10.3, the core schema): `4:00:00` and `on` are texts,
`3e-4` is a number, and `010` is ten. What JSON has no word for (tags, dates, infinity) is no value here, and a value
that stands for another one (`*name`) is refused, so that a small file cannot become a large one.
"""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaml.nodes import Node, ScalarNode

YAML_SUFFIXES = (".yaml", ".yml")
#: The longest config of ours has a few kilobytes; experiments of a large study have some hundred.
MOST_BYTES = 4 * 2**20

#: Of a whole number.
MOST_DIGITS = 1000

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_QUOTES = "\u201c\u201d\u201e\u2018\u2019\u201a\u00ab\u00bb"
_FOREIGN = f"{_QUOTES}\u00a0\u202f\u200b\ufeff"
#: Of what is written without quotes: a text only if it is nothing else.
PLAIN = "plain"
_TEXT, _LIST, _OBJECT = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))


class DocumentError(Exception):
    """The text cannot be used: a clause to be put behind the file's name, with ", line 3, column 5: " or ": " first."""


def is_yaml(path: Path) -> bool:
    """Whether a file of this name is read as YAML."""
    return path.suffix.lower() in YAML_SUFFIXES


def read_document(path: Path) -> dict[str, Any]:
    """The object in `path`. Errors: OSError; DocumentError."""
    with open(path, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise DocumentError(f": cannot be a config: it is longer than {MOST_BYTES >> 20} MiB")
    text = text_of(data)
    try:
        value = _of_yaml(text) if is_yaml(path) else _of_json(text)
    except RecursionError:
        raise DocumentError(": nested too deeply") from None
    except ValueError as error:  # a number of more digits than Python makes a number of
        raise DocumentError(f": not a config: {error}") from None
    if not isinstance(value, dict):
        kind = "a YAML mapping, `name: value` lines" if is_yaml(path) else "a JSON object in braces"
        raise DocumentError(f": a config is {kind}; this is {_kind(value)}")
    return value


def text_of(data: bytes) -> str:
    """What an editor saved, in any encoding of Unicode, with its mark or without. Errors: DocumentError."""
    try:
        return data.decode(json.detect_encoding(data))
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise DocumentError(f", line {line}: it is not in UTF-8: save the file as UTF-8 in your editor") from None


def _kind(value: Any) -> str:
    kinds = {list: "a list", str: "a text", bool: "true or false", type(None): "empty (null)"}
    return kinds.get(type(value), "a number")


def _of_json(text: str) -> Any:
    if not text.strip():
        raise DocumentError(": the file is empty")
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except json.JSONDecodeError as error:
        behind_comma = text[: error.pos].rstrip().endswith(",") and text[error.pos :][:1] in {"}", "]"}
        why = "remove the comma before it" if behind_comma else _foreign_words(text[error.pos :][:1]) or error.msg
        raise DocumentError(f", line {error.lineno}, column {error.colno}: not valid JSON: {why}") from None


def _foreign_words(letter: str) -> str:
    """What to type in the place of a quote or a blank that a word processor or a web page made; "" of others."""
    if not letter or letter not in _FOREIGN:
        return ""
    instead = "a straight quote" if letter in _QUOTES else "an ordinary space"
    return f"here is a {unicodedata.name(letter).lower()} (U+{ord(letter):04X}): type {instead} in its place"


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two values of one name JSON would silently keep the last."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise DocumentError(f': "{name}" is written twice in one object')
        found[name] = value
    return found


def _of_yaml(text: str) -> Any:
    import yaml  # noqa: PLC0415 - most configs are JSON, and every command of a person waits for its imports

    class Loader(yaml.BaseLoader):  # type: ignore[misc]
        """PyYAML's reading as far as nodes, whose values nobody has made anything of."""

        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            return PLAIN if kind is yaml.ScalarNode and implicit[0] else super().resolve(kind, value, implicit)

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.events.AliasEvent):
                event = self.peek_event()
                raise _at(event.start_mark, f"*{event.anchor} stands for another value: write that one out")
            return super().compose_node(parent, index)

    try:
        node = Loader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _at(mark, f"not valid YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:  # a character that no text has
        raise DocumentError(f": not valid YAML: {str(error).splitlines()[0]}") from None
    return None if node is None else _value(node)


def _at(mark: Any, words: str) -> DocumentError:
    return DocumentError(f", line {mark.line + 1}, column {mark.column + 1}: {words}")


def _value(node: Node) -> Any:
    from yaml.nodes import MappingNode, ScalarNode  # noqa: PLC0415 - as above

    if node.tag == PLAIN:
        return _scalar(_plain(node))
    if node.tag not in {_TEXT, _LIST, _OBJECT}:
        raise _at(node.start_mark, f"{node.tag} is no type that a config has: leave the tag out")
    if isinstance(node, ScalarNode):
        return str(node.value)
    if not isinstance(node, MappingNode):
        return [_value(one) for one in node.value]
    found: dict[str, Any] = {}
    for key, value in node.value:
        if not isinstance(key, ScalarNode):
            raise _at(key.start_mark, "a name is one word, not a list or a mapping")
        name = _plain(key) if key.tag == PLAIN else key.value
        if name in found:
            raise _at(key.start_mark, f'"{name}" is written twice in one mapping')
        found[name] = _value(value)
    return found


def _plain(node: ScalarNode) -> str:
    """The text of a value without quotes. Errors: DocumentError where foreign quotes stand around it, or blanks."""
    if words := _foreign_words(node.value[:1]) or _foreign_words(node.value[-1:]):
        raise _at(node.start_mark, words)
    return str(node.value)


def _scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        if len(text) > MOST_DIGITS:  # Python reads more in 8 or 16, and then cannot write them in 10
            raise ValueError(f"a number of {len(text):,} digits")
        return int(text, 8 if text.startswith("0o") else 16 if text.startswith("0x") else 10)
    return float(text) if _FLOAT.fullmatch(text) else text
