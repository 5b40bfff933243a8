"""The doctor's program on a node: all tasks load and step, and one is drawn."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from daemons import WORK_S
from needs import need_drawing

from trainer.config.suites import MT10

pytestmark = pytest.mark.trainer


def probed(*tasks: str, way: str) -> subprocess.CompletedProcess[str]:
    """The program with MUJOCO_GL=`way`."""
    return subprocess.run(
        [sys.executable, "-m", "trainer.showing.taskprobe", *tasks],
        env={**os.environ, "MUJOCO_GL": way}, capture_output=True, text=True, check=False, timeout=WORK_S,
    )  # fmt: skip


@pytest.mark.long
def test_all_tasks_of_mt10_load_where_nothing_can_be_drawn() -> None:
    done = probed(*MT10, way="disable")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"metaworld": "3.1.1", "benchmark": "MT10", "loaded": 10}


@pytest.mark.long
def test_the_first_task_is_drawn_and_is_not_blank() -> None:
    way, _ = need_drawing()
    done = probed("push-v3", "reach-v3", way=way)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["benchmark"], found["loaded"], found["drawn"]) == ("", 2, "push-v3")
    assert found["colours"] > 1000


def test_a_task_that_is_not_there_is_named() -> None:
    done = probed("reach-v3", "nonsense-v3", way="disable")
    assert done.returncode != 0
    assert done.stdout == ""
    assert "nonsense-v3" in done.stderr.splitlines()[-1]
