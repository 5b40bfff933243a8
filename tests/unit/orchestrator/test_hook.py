from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from builders import NOW
from daemons import started_at, wait_for

from orchestrator.config import RunConfig
from orchestrator.hosts.hook import Hook
from orchestrator.run.rundir import Run, RunDir


class Told:
    """A run whose `notify` is a small shell script, and what is said about it."""

    def __init__(self, folder: Path, script: str | None, **bounds: Any) -> None:
        self.folder = folder
        self.said: list[str] = []
        (folder / "tell.sh").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "tell.sh").chmod(0o755)
        self.run = Run(
            run_id="toy-0123abcd",
            revision=0,
            created_at=NOW,
            executor="local",
            config=RunConfig(run_name="toy", notify=["./tell.sh", "a word"] if script is not None else None),
            config_path=str(folder / "cluster_config.json"),
            folder=str(folder),
            python="python3",
            code="c0de",
            identity=None,
            env={"PATH": "/usr/bin:/bin", "KEPT": "yes"},
        )
        self.hook = Hook(self.run, RunDir(folder / "run"), self.said.append, **bounds)


def test_the_command_hears_the_event_in_its_environment_and_on_its_input(tmp_path: Path) -> None:
    told = Told(tmp_path, 'env > env.txt; echo "$1" > word.txt; cat > facts.json')
    told.hook("failed", {"slot": 0, "words": "out of memory", "step": 70})
    told.hook.close()
    lines = (tmp_path / "env.txt").read_text().splitlines()
    for line in (
        "ANCHORLEG_EVENT=failed", "ANCHORLEG_SLOT=0", "ANCHORLEG_RUN_NAME=toy", "ANCHORLEG_RUN_ID=toy-0123abcd",
        "ANCHORLEG_WORDS=out of memory", "KEPT=yes",
    ):  # fmt: skip
        assert line in lines
    assert (tmp_path / "word.txt").read_text() == "a word\n"
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert (facts["event"], facts["slot"], facts["words"], facts["step"]) == ("failed", 0, "out of memory", 70)
    assert facts["at"] == pytest.approx(time.time(), abs=60)
    assert told.said == []


def test_events_are_told_one_after_the_other_and_nobody_waits_for_them(tmp_path: Path) -> None:
    told = Told(tmp_path, 'until [ -e go ]; do sleep 0.01; done; echo "$ANCHORLEG_EVENT" >> heard.txt')
    for kind in ("blind", "sighted", "finished"):
        told.hook(kind, {})
    (tmp_path / "go").touch()  # who waited for the command would not come here before it was ended
    told.hook.close()
    assert told.said == []
    assert (tmp_path / "heard.txt").read_text().split() == ["blind", "sighted", "finished"]


def test_a_command_that_hangs_is_ended_with_all_that_it_began(tmp_path: Path) -> None:
    told = Told(tmp_path, "sleep 300 & echo $! > pid; wait", timeout_s=0.3)
    told.hook("finished", {"slot": 1})
    told.hook.close()
    assert len(told.said) == 1
    began = int((tmp_path / "pid").read_text())
    wait_for(lambda: started_at(began) is None, "the end of what it began")


def test_what_is_too_much_or_too_late_is_not_told_and_counted(tmp_path: Path) -> None:
    script = 'until [ -e go ]; do sleep 0.01; done; echo "$ANCHORLEG_EVENT" >> heard.txt'
    (tmp_path / "heard.txt").touch()
    told = Told(tmp_path, script, most_waiting=2, close_timeout_s=0.1)
    for _ in range(6):
        told.hook("failed", {})
    assert len(told.said) == 3  # one is under way
    told.hook.close()
    assert len(told.said) == 4
    (tmp_path / "go").touch()
    told.hook("finished", {})
    wait_for(lambda: "finished" in (tmp_path / "heard.txt").read_text(), "the last one")
    assert (tmp_path / "heard.txt").read_text().split() == ["failed", "finished"]


def test_a_login_node_that_gives_no_more_threads_costs_the_message_and_not_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: object) -> None:
        raise RuntimeError("can't start new thread")

    told = Told(tmp_path, 'echo "$ANCHORLEG_EVENT" >> heard.txt')
    with monkeypatch.context() as limited:
        limited.setattr("threading.Thread.start", refuse)
        told.hook("failed", {"slot": 0})
    told.hook("paused", {"slot": 1})
    told.hook.close()
    assert (tmp_path / "heard.txt").read_text().split() == ["failed", "paused"]
    assert "no new thread" in told.said[0]
