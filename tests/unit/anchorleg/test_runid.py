"""The id of a run that no orchestrator keeps."""

from __future__ import annotations

import shutil
from pathlib import Path

from anchorleg.job import Job
from anchorleg.places import run_id_of


def test_a_run_begun_anew_has_another(tmp_path: Path) -> None:
    before = Job.standalone(tmp_path / "mine").run_id
    shutil.rmtree(tmp_path / "mine")
    after = Job.standalone(tmp_path / "mine").run_id
    assert before != after
    assert before.rpartition("-")[0] == after.rpartition("-")[0] == "mine"


def test_a_copy_has_another(tmp_path: Path) -> None:
    here = Job.standalone(tmp_path / "a/mine").run_id
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert Job.standalone(tmp_path / "b/mine").run_id != here == run_id_of(tmp_path / "a/mine")


def test_a_run_that_has_begun_without_one_keeps_its_id(tmp_path: Path) -> None:
    (tmp_path / "mine/slots/0/attempts/0").mkdir(parents=True)
    before = run_id_of(tmp_path / "mine")
    assert Job.standalone(tmp_path / "mine").run_id == before


def test_an_attempt_is_above_those_that_the_slot_published_and_no_others(tmp_path: Path) -> None:
    job = Job.standalone(tmp_path / "mine")
    manifests = job.shared_dir / "v1/runs" / job.run_id / "0/manifests"
    manifests.mkdir(parents=True)
    for name in ("000003-000000500.json", "000002-000000001.json", "000009-000000001.json.tmp", "latest"):
        (manifests / name).touch()
    shutil.rmtree(job.slot_dir)
    assert [Job.standalone(tmp_path / "mine", slot).attempt for slot in (0, 0, 1)] == [4, 5, 0]
    elsewhere = Job.standalone(tmp_path / "mine", shared_dir=tmp_path / "other")
    assert (elsewhere.attempt, elsewhere.run_id) == (6, job.run_id)
