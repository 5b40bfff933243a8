"""kill -9 at every write of a publication: there is always a good checkpoint, the one before or the new one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import WORK_S

pytest.importorskip("torch")

pytestmark = pytest.mark.trainer
REPOSITORY = Path(__file__).parents[2]
PROGRAM = REPOSITORY / "tests" / "support" / "kill_publication.py"
ORDERLY = 7


def records_of(folder):
    """One record a moment of death; the last one lived."""
    environment = {"PYTHONPATH": f"{REPOSITORY}:{PROGRAM.parent}", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, str(PROGRAM), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WORK_S, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_after_a_kill_at_any_write_there_is_a_good_checkpoint_and_the_successor_tidies_up(tmp_path):
    """One test, so that the deaths are died once, not once a pytest worker."""
    deaths = records_of(tmp_path)
    every_contact_with_the_disk_was_a_death_but_the_last_run(deaths)
    the_loader_finds_the_checkpoint_before_or_the_new_one_whole(deaths)
    the_successor_publishes_and_clears_away_what_the_dead_one_left(deaths)


def every_contact_with_the_disk_was_a_death_but_the_last_run(deaths):
    assert len(deaths) > 30  # rows, five files, the rename, and the clearing away
    assert {record["died"] for record in deaths[:-1]} == {-9}
    assert deaths[-1]["died"] == ORDERLY


def the_loader_finds_the_checkpoint_before_or_the_new_one_whole(deaths):
    new = deaths[-1]["after"]
    for record in deaths:
        assert record["after"] in (record["before"], new), record["k"]
    assert [record["after"] == new for record in deaths] == sorted(record["after"] == new for record in deaths)
    assert sum(record["after"] == new for record in deaths) > 5  # the clearing away comes after the rename


def the_successor_publishes_and_clears_away_what_the_dead_one_left(deaths):
    for record in deaths:
        assert record["successor"] == ORDERLY
        assert record["finally"]["step"] == record["after"]["step"] + 100
        assert record["finally"]["notes"] == []
        assert record["unfinished"] == []
        assert (record["whole"], record["nets"]) == (3, 4)
