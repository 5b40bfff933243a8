"""docs/environments.md, Gymnasium: every block of it is run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import WORK_S

pytest.importorskip("torch")

from orchestrator.config import parse_config
from trainer.config.suites import Gymnasium
from trainer.envs.exact import Exactness
from trainer.envs.suite import SuiteRef

pytestmark = pytest.mark.trainer
ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/environments.md").read_text().split("## Train on a Gymnasium")[1].split("\n## ")[0]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
#: The two environments, by the class that a block has.
CODE = {re.findall(r"^class (\w+)", code, re.MULTILINE)[0]: code for kind, code in BLOCKS if kind == "python"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """With a module for each environment."""
    for name, code in CODE.items():
        (tmp_path / f"{name.lower()}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in CODE:
        sys.modules.pop(name.lower(), None)


def shell(folder: Path, text: str) -> str:
    """What `text` says, where `trainer` is the one of this checkout."""
    stub = folder / "bin" / "trainer"
    stub.parent.mkdir()
    stub.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}:$PYTHONPATH" exec "{sys.executable}" -P -m trainer "$@" \n')
    stub.chmod(0o755)
    done = subprocess.run(
        ["sh", "-e", "-c", text],
        cwd=folder,
        env={
            "PATH": os.pathsep.join([str(stub.parent), os.environ["PATH"]]),
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(Path.home() / ".cache"),  # what is compiled lies there already
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WORK_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_page_has_what_is_run_here() -> None:
    assert [kind for kind, _ in BLOCKS] == ["json", "json", "python", "bash", "python"]
    lines = {name: len([line for line in code.splitlines() if line.strip()]) for name, code in CODE.items()}
    assert lines["Corridor"] <= 10
    assert lines["Windy"] <= 20


def test_the_configs_are_such() -> None:
    found = [parse_config(json.loads(text), "the page") for kind, text in BLOCKS if kind == "json"]
    assert [one.training.written["env"]["id"] for one in found] == ["Pendulum-v1", "my_package.world:MyEnv"]
    assert found[1].training.written["algorithm"] == "ppo"


@pytest.mark.parametrize(("name", "way", "tells"), [("Corridor", "replay", True), ("Windy", "own", False)])
def test_the_environments_are_exact_as_the_page_says(folder: Path, name: str, way: str, tells: bool) -> None:
    settings = Gymnasium(id=f"{name.lower()}:{name}", horizon=100)
    suite = SuiteRef(settings).open()
    assert suite.make(0)._choice == Exactness(way)
    assert suite.tells_success == tells


@pytest.mark.long
def test_the_commands_train_and_evaluate(folder: Path) -> None:
    (text,) = (text for kind, text in BLOCKS if kind == "bash")
    # The debug preset's 10,000 steps would be a minute; the page need not say so.
    said = shell(folder, text.replace("--run-dir run", "--set total_steps=600 --set random_steps=200 --run-dir run"))
    assert "complete: 600 steps" in said
    assert re.search(r"step 600: success .* %", said)
