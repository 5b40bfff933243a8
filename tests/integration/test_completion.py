"""Completion in a real bash: what it answers to the Tab key."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import PATIENCE_S

#: As bash does it at a Tab: the words so far, the place of the cursor, then the function of `complete -F`.
AT_TAB = """
source complete.bash
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_orchestrator_completion "$COMMAND"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An account with two runs, in whose bash completion is installed."""
    for name, slots in (("walker", 3), ("wide-mt50", 12)):
        run_dir = tmp_path / "runs" / name
        run_dir.mkdir(parents=True)
        (run_dir / "run.json").write_text(json.dumps({"run_id": f"{name}-0", "config": {"slots": slots}}))
        entry = {"run_id": f"{name}-0", "run_name": name, "run_dir": str(run_dir), "registered_at": 1.0}
        folder = tmp_path / "state" / "anchorleg" / "runs"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.json").write_text(json.dumps(entry))
    (tmp_path / "state" / "anchorleg" / "runs" / "torn.json").write_text('{"run_na')
    command = Path(sys.executable).parent / "orchestrator"
    shown = subprocess.run(
        [command], env={**os.environ, "_ORCHESTRATOR_COMPLETE": "source_bash"},
        capture_output=True, text=True, check=True, timeout=PATIENCE_S,
    )  # fmt: skip
    (tmp_path / "complete.bash").write_text(shown.stdout)
    return tmp_path


def answers(home: Path, *words: str) -> list[str]:
    """What bash offers at a Tab behind `orchestrator WORDS`."""
    env = {**os.environ, "XDG_STATE_HOME": str(home / "state")}
    env["COMMAND"] = str(Path(sys.executable).parent / "orchestrator")
    done = subprocess.run(
        ["bash", "--norc", "-c", AT_TAB, "bash", "orchestrator", *words],
        cwd=home, env=env, capture_output=True, text=True, check=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.long
def test_verbs_and_names_are_completed(home: Path) -> None:
    assert answers(home, "exp") == ["explain"]
    assert sorted(answers(home, "status", "")) == ["walker", "wide-mt50"]
    assert answers(home, "stop", "wi") == answers(home, "explain", "0", "wi") == ["wide-mt50"]
    assert answers(home, "status", "nothing-like-it") == []
