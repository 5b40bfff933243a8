"""The config reference, made from the models themselves, so that it cannot fall behind them."""

from __future__ import annotations

import json
from typing import Any

from orchestrator.config import RunConfig
from trainer.config.section import presets

HEAD = """# Config reference

The file is JSON, or YAML if its name ends in `.yaml` or `.yml`. Every field is optional. On the command line,
`--set path.to.field=value` overrides the file. `orchestrator schema --markdown` prints this page.
"""

PRESETS_HEAD = """A preset only sets values; [Algorithms](algorithms.md#start-from-a-preset) names their sources.
The values suit the preset's tasks; those of `mclean`, `best` and `brc` grow with the number of tasks.
"""
#: In these, fields that variants share may differ.
_APART = {"default": None, "const": None}
_COLUMNS = ("total_steps", "num_envs", "batch_size", "buffer_size", "learning_rate", "actor_hidden", "critic_hidden")


def config_reference() -> str:
    """Markdown: one table a section, with type, default and meaning of each field."""
    schema = RunConfig.model_json_schema()
    definitions = schema["$defs"]
    parts = [HEAD, "## The file\n", _table(schema, definitions), *_sections(schema, definitions, "")]
    return "\n".join(parts) + "\n"


def _sections(section: dict[str, Any], definitions: dict[str, Any], prefix: str) -> list[str]:
    """Those in `section`, and those in them: a head and a table each."""
    parts: list[str] = []
    for name, field in section["properties"].items():
        targets = _targets(field, definitions)
        if shared := _shared(targets):
            parts += [f"\n## `{prefix}{name}`\n\nShared fields:\n", _table({"properties": shared}, definitions)]
        for inner in targets:
            which = f" of {inner['properties']['name']['default']}" if shared else ""
            parts += [f"\n## `{prefix}{name}`{which}\n", inner.get("description", "") + "\n"]
            fields = inner["properties"]
            own = {key: it for key, it in fields.items() if {**it, **_APART} != shared.get(key)}
            defaults = ", ".join(f"`{key}` {json.dumps(fields[key]['default'])}" for key in fields if key not in own)
            parts += [f"Shared fields: {defaults}.\n"] if defaults else []
            parts.append(_table({"properties": own}, definitions))
            if name == "training":
                parts += ["\n### Presets\n", PRESETS_HEAD, _presets()]
            parts += _sections(inner, definitions, f"{prefix}{name}.")
    return parts


def _shared(variants: list[dict[str, Any]]) -> dict[str, Any]:
    """The fields that at least two variants have alike; without defaults, which may differ."""
    every = [(name, {**field, **_APART}) for each in variants for name, field in each["properties"].items()]
    return {name: field for name, field in every if every.count((name, field)) > 1}


def _targets(field: dict[str, Any], definitions: dict[str, Any]) -> list[dict[str, Any]]:
    """The sections that it may be."""
    options = [field, *field.get("anyOf", []), *field.get("allOf", [])]
    options = [definitions[one["$ref"].rpartition("/")[2]] if "$ref" in one else one for one in options]
    return [option for option in options if "properties" in option]


def _table(section: dict[str, Any], definitions: dict[str, Any]) -> str:
    lines = ["| field | type | default | meaning |", "| --- | --- | --- | --- |"]
    for name, field in section["properties"].items():
        targets = _targets(field, definitions)
        meaning = field.get("description") or (targets[0].get("description", "") if targets else "")
        default = "" if targets or field.get("default") is None else f"`{json.dumps(field['default'])}`"
        words = " ".join(meaning.split()).replace("|", "\\|")
        lines.append(f"| `{name}` | {'section' if targets else _type(field)} | {default} | {words} |")
    return "\n".join(lines)


def _presets() -> str:
    names = ("preset", *_COLUMNS, "meaning")
    lines = [f"| {' | '.join(names)} |", "| --- " * len(names) + "|"]
    for name, (about, training) in presets().items():
        flat = {**dict(training.network), **dict(training.algorithm), **dict(training)}
        values = [_number(flat[column]) if column in flat else "" for column in _COLUMNS]
        lines.append(f"| `{name}` | {' | '.join(values)} | {about['about']} |")
    return "\n".join(lines)


def _number(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field:
        return ", ".join(dict.fromkeys(_type(option) for option in field["anyOf"] if option.get("type") != "null"))
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_type(field.get('items', {}))}"
    return {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}.get(kind, kind)
