"""Classes of somebody else, by name."""

from __future__ import annotations

import json
import re
import sys

import pytest
from refused import refused
from typer.testing import CliRunner

from trainer.cli import app
from trainer.config.find import SUITES, settings_of
from trainer.config.pictures import PictureSettings
from trainer.config.read import read_section
from trainer.errors import ConfigError

pytestmark = pytest.mark.trainer


class Halfway:
    """A suite that somebody has begun to write."""

    class Settings(PictureSettings):
        """Of it."""

        name: str = f"{__name__}:Halfway"


def test_its_settings_are_read_where_nothing_can_be_trained():
    assert settings_of(SUITES, f"{__name__}:Halfway") is Halfway.Settings


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def Mine(:", r"SyntaxError: invalid syntax \(odd_plugin.py, line 1\)"),
        ("Mine = its_base", r"NameError: name 'its_base' is not defined \(.*odd_plugin.py, line 1\)"),
        ("raise SystemExit('no licence')", r"SystemExit: no licence \(.*odd_plugin.py, line 1\)"),
    ],
)
def test_a_package_that_cannot_be_imported_is_told_with_its_line(tmp_path, monkeypatch, text, words):
    (tmp_path / "odd_plugin.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "odd_plugin", raising=False)
    with refused("plugin.not-loaded", field="env", why=re.compile(words)) as caught:
        read_section(None, None, ["env=odd_plugin:Mine"])
    assert "\n" not in str(caught.value)


SEEN = {"name": "anchorleg_toys.points:Points", "observation": "both", "image_size": 64}
TRAIN = ["train", "--run-dir", "run", "--set", "algorithm=ppo"]


@pytest.mark.parametrize(
    ("encoder", "words"),
    [
        ("simple3dcnn", "simple3dcnn reads clips, and these are pictures"),
        ("json:dumps", "the encoder 'json:dumps' is not a torch.nn.Module class"),
        ("json:JSONDecoder", "the encoder 'json:JSONDecoder' is not a torch.nn.Module class"),
    ],
)
def test_what_cannot_be_built_is_a_sentence(tmp_path, monkeypatch, encoder, words):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    settings = [f"env={json.dumps(SEEN)}", f'encoders={{"image": "{encoder}"}}']
    done = CliRunner().invoke(app, [*TRAIN, *(word for setting in settings for word in ("--set", setting))])
    assert isinstance(done.exception, ConfigError)
    assert re.match(words, str(done.exception))
    assert not [path for path in tmp_path.rglob("*") if "checkpoint" in path.name or path.suffix == ".jsonl"]
