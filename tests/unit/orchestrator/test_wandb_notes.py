"""W&B as `start` sees it: what jobs are told, what of it is kept, and what the user is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.config import parse_config
from orchestrator.configwarnings import wandb_notes
from orchestrator.run.begin import KEPT_VARIABLES
from trainer.config.wandb import WandbSection, wandb_environment

KEY = "0123456789abcdef" * 3


def test_what_is_typed_is_stronger_than_the_config() -> None:
    section = WandbSection(mode="offline", project="file", tags=("a", "b"))
    assert wandb_environment(section, {}) == {
        "WANDB_MODE": "offline",
        "WANDB_PROJECT": "file",
        "WANDB_TAGS": "a,b",
    }
    own = {"WANDB_BASE_URL": "https://wandb.example.org"}
    assert own.items() <= wandb_environment(section, own).items()  # or their curves would go to the public one
    typed = wandb_environment(section, {"WANDB_MODE": "online", "WANDB_PROJECT": "", "WANDB_API_KEY": KEY})
    assert (typed["WANDB_MODE"], typed["WANDB_PROJECT"]) == ("online", "file")
    assert KEY not in typed.values()
    assert wandb_environment(WandbSection(), {}) == {}


def test_the_key_is_kept_nowhere() -> None:
    assert "WANDB_MODE" in KEPT_VARIABLES
    assert "WANDB_API_KEY" not in KEPT_VARIABLES


SERVER = "https://wandb.example.org:8443"


@pytest.mark.parametrize(
    ("mode", "environ", "key_for", "says"),
    [
        (None, {"WANDB_API_KEY": KEY}, "", None),
        ("disabled", {}, "", None),
        ("offline", {}, "", "`wandb sync`"),
        (None, {"WANDB_MODE": "dryrun"}, "", "`wandb sync`"),
        ("online", {"WANDB_MODE": "disabled"}, "", "WANDB_MODE=disabled"),
        ("online", {}, "api.wandb.ai", None),
        ("online", {}, "", "`wandb login`"),
        ("online", {"WANDB_API_KEY": KEY}, "", "jobs do not get WANDB_API_KEY"),
        ("online", {"WANDB_BASE_URL": SERVER}, "api.wandb.ai", "`wandb login`"),
        ("online", {"WANDB_BASE_URL": SERVER}, "wandb.example.org:8443", None),
        ("online", {"NETRC": "/nowhere"}, "api.wandb.ai", "`wandb login`"),
        (None, {"WANDB_MODE": "onlin"}, "", "'onlin'"),
        ("online", {"WANDB_BASE_URL": "https:///a"}, "api.wandb.ai", "WANDB_BASE_URL is not the address"),
        ("online", {"WANDB_BASE_URL": "http://["}, "api.wandb.ai", "WANDB_BASE_URL is not the address"),
    ],
)
def test_what_is_otherwise_than_expected_is_one_sentence(
    tmp_path: Path, mode: Any, environ: dict[str, str], key_for: str, says: str | None
) -> None:
    if key_for:
        (tmp_path / ".netrc").write_text(f"machine {key_for}\n  login user\n  password {KEY}\n")
        (tmp_path / ".netrc").chmod(0o600)
    found = wandb_notes(WandbSection(mode=mode), environ, tmp_path)
    assert len(found) == (says is not None)
    assert all((says or "") in one and KEY not in one for one in found)


def test_the_section_does_not_change_what_is_trained() -> None:
    plain, live = (parse_config(value, "c") for value in ({}, {"wandb": {"mode": "online", "project": "p"}}))
    assert plain.training_of(0) == live.training_of(0)
