"""Reading the training section: from a file of its own, from a cluster config, from the command line."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from trainer.config.document import DocumentError, read_document
from trainer.config.doubts import doubts_about
from trainer.config.section import TrainingSection, named_first, put, resolve
from trainer.config.sentences import sentences
from trainer.config.training import Training
from trainer.config.wandb import WandbSection
from trainer.errors import ConfigError


@dataclass(frozen=True)
class LoadedSection:
    """What the user asked for, as it was written, and resolved. `run_name` and `wandb` where the file is a cluster
    config that has them.
    """

    section: TrainingSection
    training: Training
    run_name: str | None
    warnings: tuple[str, ...]
    wandb: WandbSection


def read_section(config: Path | None, preset: str | None, settings: list[str]) -> LoadedSection:
    """The file's section (none: empty), then `preset`, then `settings` ("name=value"), resolved.

    Errors: ConfigError, one line a mistake.
    """
    value, file = _read(config) if config else ({}, {})
    if preset is not None:
        value["preset"] = preset
    for name, typed in named_first(map(_setting, settings)):
        put(value, name, typed)
    where = str(config) if config else "the command line"
    try:
        section = TrainingSection.model_validate(value)
    except ValidationError as error:
        raise ConfigError(_lines(error, TrainingSection, f"{where}: ")) from None
    try:
        wandb = WandbSection.model_validate(file.get("wandb") or {})
    except ValidationError as error:
        raise ConfigError(_lines(error, WandbSection, f"{where}: wandb.")) from None
    run_name = file.get("run_name")
    training = resolve(section)
    warnings = tuple(f"{name}: {why}" for name, why in doubts_about(training))
    return LoadedSection(section, training, str(run_name) if run_name else None, warnings, wandb)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The training section, and the cluster config that it is part of; empty where it stands alone."""
    try:
        value = read_document(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}): name a file with --config") from None
    except DocumentError as error:
        raise ConfigError(f"{path}{error}") from None
    if "training" in value or "run_name" in value:
        section = value.get("training") or {}
        if not isinstance(section, dict):
            raise ConfigError(f"{path}: training must be a section of its own: its fields by name")
        # The other sections are the orchestrator's, which refuses what it does not know.
        others = value.keys() - {"training"}
        if not section and (near := difflib.get_close_matches("training", others, n=1, cutoff=0.7)):
            raise ConfigError(f'{path}: {near[0]}: there is no such section; did you mean "training"?')
        return dict(section), value
    return value, {}


def _setting(text: str) -> tuple[str, Any]:
    """(dotted name, value) of one "name=value". Errors: ConfigError."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text!r} has no '='; write it as --set batch_size=256")
    name = name.removeprefix("training.")
    if not name.rpartition(".")[2]:
        raise ConfigError(f"--set {text!r} names no field; write it as --set batch_size=256")
    typed = _value(value)
    return name, [typed] if name.endswith("tasks") and isinstance(typed, str) else typed


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text.split(",") if "," in text else text


def _lines(error: ValidationError, model: type[BaseModel], before: str) -> str:
    return "\n".join(f"{before}{words}" for _, words in sentences(error, model))
