"""The id of a run that no orchestrator keeps."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from anchorleg.job import Job
from anchorleg.places import begin_id, run_id_of


@given(st.text(min_size=1, max_size=60).filter(lambda name: not set(name) & set("\0/") and name not in {".", ".."}))
def test_it_is_of_its_place_and_any_machine_can_write_it(name: str) -> None:
    try:
        run_id = run_id_of(Path("/runs") / name)
    except UnicodeEncodeError:  # no file can have this name
        return
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,80}", run_id)
    assert run_id == run_id_of(Path("/runs") / name) != run_id_of(Path("/other") / name)


def test_all_attempts_and_slots_of_a_run_have_one(tmp_path: Path) -> None:
    run = tmp_path / "mine"
    jobs = [Job.standalone(run, slot) for slot in (0, 1, 0)]
    assert {job.run_id for job in jobs} == {run_id_of(run)}
    begin_id(run)
    assert run_id_of(run) == jobs[0].run_id


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
