"""W&B as `start` sees it: what jobs are told, what of it is kept, and what the user is told."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from orchestrator.config import parse_config
from orchestrator.run.begin import KEPT_VARIABLES
from orchestrator.run.wandbnotes import notes
from trainer.config.wandb import WandbSection, wandb_environment

KEY = "0123456789abcdef" * 3


def with_key(home: Path, host: str = "api.wandb.ai") -> Path:
    path = home / ".netrc"
    path.write_text(f"machine {host}\n  login user\n  password {KEY}\n")
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    return home


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


def test_who_asks_for_nothing_is_told_nothing(tmp_path: Path) -> None:
    assert notes(WandbSection(), {"WANDB_API_KEY": KEY}, tmp_path) == ()
    assert notes(WandbSection(mode="disabled"), {}, tmp_path) == ()


def test_offline_is_reminded_of_the_two_commands(tmp_path: Path) -> None:
    [sentence] = notes(WandbSection(mode="offline"), {}, tmp_path)
    assert "`trainer wandb RUN` and then `wandb sync`" in sentence


def test_a_variable_that_overrules_the_config_is_named(tmp_path: Path) -> None:
    sentences = notes(WandbSection(mode="online"), {"WANDB_MODE": "disabled"}, tmp_path)
    assert sentences == ("wandb.mode: online: WANDB_MODE=disabled in your environment is stronger.",)


@pytest.mark.parametrize("variable", ["", KEY])
def test_a_key_that_jobs_will_not_find_is_told_before_they_start(tmp_path: Path, variable: str) -> None:
    environ = {"WANDB_API_KEY": variable}
    [sentence] = notes(WandbSection(mode="online"), environ, tmp_path)
    assert "no key in ~/.netrc" in sentence
    assert "`wandb login`" in sentence
    assert ("WANDB_API_KEY is not passed on" in sentence) == bool(variable)
    assert KEY not in sentence
    assert notes(WandbSection(mode="online"), environ, with_key(tmp_path)) == ()


def test_a_key_counts_for_its_own_server_alone(tmp_path: Path) -> None:
    own = {"WANDB_BASE_URL": "https://wandb.example.org:8443"}
    assert notes(WandbSection(mode="online"), own, with_key(tmp_path))
    assert notes(WandbSection(mode="online"), own, with_key(tmp_path, "wandb.example.org:8443")) == ()
    elsewhere = {"NETRC": str(tmp_path / "absent")}
    assert notes(WandbSection(mode="online"), elsewhere, with_key(tmp_path))


def test_a_mode_that_wandb_does_not_have_is_told_before_the_jobs_start(tmp_path: Path) -> None:
    [sentence] = notes(WandbSection(), {"WANDB_MODE": "onlin"}, tmp_path)
    assert "'onlin'" in sentence
    assert "none of online, offline, disabled" in sentence


def test_an_older_word_for_a_mode_is_that_mode(tmp_path: Path) -> None:
    assert notes(WandbSection(), {"WANDB_MODE": "dryrun"}, tmp_path) == notes(
        WandbSection(mode="offline"), {}, tmp_path
    )


@pytest.mark.parametrize("address", ["http://[", "wandb.corp", "https:///a"])
def test_a_server_that_is_no_address_is_told_and_its_variable_is_not_repeated(tmp_path: Path, address: str) -> None:
    [sentence] = notes(WandbSection(mode="online"), {"WANDB_BASE_URL": address}, with_key(tmp_path))
    assert "WANDB_BASE_URL is no address" in sentence
    assert address not in sentence


def test_the_section_does_not_change_what_is_trained() -> None:
    plain, live = (parse_config(value, "c") for value in ({}, {"wandb": {"mode": "online", "project": "p"}}))
    assert plain.training_of(0) == live.training_of(0)
