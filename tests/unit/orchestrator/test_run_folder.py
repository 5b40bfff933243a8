"""What is read from and written to a run folder: begin, evidence, status, summary, registry, job folders, code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest
from builders import NOW, a_claim, a_job, a_run, a_slot, no_code, seen, token
from daemons import PATIENCE_S
from refused import refused

from anchorleg import places
from orchestrator.config import RunConfig, parse_config, training_identity
from orchestrator.decisions.models import Ledger, SubmissionState, Submit, Verdict
from orchestrator.errors import ConfigError, RunFolderError
from orchestrator.executors.base import Poll
from orchestrator.run import rundir
from orchestrator.run.begin import begin, prepare_folder, run_dir_of
from orchestrator.run.code import FOR_PROGRAMS, fix_code
from orchestrator.run.evidence import read_all, read_evidence
from orchestrator.run.ledger import save_ledger
from orchestrator.run.rundir import Run, RunDir, ask, load_run
from orchestrator.run.submission import (
    JOBS_KEPT,
    drop_old_job_folders,
    job_script,
    make_job_folder,
)
from orchestrator.screens.reading import UNUSABLE, run_view
from orchestrator.screens.runview import RunView

ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/home/me", "SECRET_TOKEN": "hunter2"}
TOY: dict[str, Any] = {"run_name": "toy", "executor": "local", "command": ["python3", "toy.py"]}
TRAINING: dict[str, Any] = {"run_name": "toy", "executor": "local", "training": {"preset": "tiny"}}


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    folder = RunDir(tmp_path / "runs" / "toy")
    prepare_folder(folder)
    return folder


def a_config(value: dict[str, Any] | None = None, **more: Any) -> RunConfig:
    return parse_config({**(value or TOY), **more}, "c.json")


def begun(run_dir: RunDir, config: RunConfig | None = None) -> Run:
    return begin(config or a_config(), run_dir.path.parent.parent / "c.json", run_dir, ENVIRONMENT, NOW, fix=no_code)


def with_ledger(run_dir: RunDir, ledger: Ledger) -> Run:
    run = begun(run_dir)
    save_ledger(run_dir, ledger.model_copy(update={"run_id": run.run_id}), NOW)
    return run


def put(run_dir: RunDir, name: str, value: Any, *, slot: int = 0, attempt: int = 0) -> None:
    folder = run_dir.attempt(slot, attempt)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))


def submitted(run: Run, run_dir: RunDir) -> None:
    """A job of each slot, but for the scheduler."""
    for slot in range(run.config.slots):
        make_job_folder(run, run_dir, Submit(slot, 0, token(slot)))


class TestBegin:
    def test_the_id_is_the_name_and_eight_hex_digits_and_stays(self, run_dir: RunDir) -> None:
        first = begun(run_dir)
        name, _, digits = first.run_id.rpartition("-")
        assert (name, len(digits), first.revision) == ("toy", 8, 0)
        assert begun(run_dir) == first
        assert load_run(run_dir) == first

    def test_secrets_of_the_environment_do_not_reach_a_shared_folder(self, run_dir: RunDir) -> None:
        begun(run_dir)
        assert "hunter2" not in run_dir.run_file.read_text()
        assert load_run(run_dir).env == {"PATH": ENVIRONMENT["PATH"], "HOME": "/home/me"}

    def test_a_slot_that_comes_back_must_be_the_one_that_went(self, run_dir: RunDir) -> None:
        other = {"slot_overrides": {"1": {"gamma": 0.5}}}
        begun(run_dir, a_config(TRAINING, slots=2))
        put(run_dir, "claim", a_claim().model_dump())
        begun(run_dir, a_config(TRAINING, slots=1))
        with refused("run.other-training"):
            begun(run_dir, a_config(TRAINING, slots=2, **other))

    @pytest.mark.parametrize("first", ["slurm", "local"])
    def test_auto_does_not_move_a_run_that_has_jobs(self, run_dir: RunDir, tmp_path: Path, first: str) -> None:
        (tmp_path / "sbatch").touch(mode=0o755)
        environs = [{"PATH": str(tmp_path)}, {"PATH": "/nowhere"}]
        one, other = environs if first == "slurm" else reversed(environs)
        auto, path = a_config(executor="auto"), tmp_path / "c.json"
        assert begin(auto, path, run_dir, one, NOW, fix=no_code).executor == first
        assert begin(auto, path, run_dir, other, NOW, fix=no_code).executor != first, "it has no job yet"
        run = begin(auto, path, run_dir, one, NOW, fix=no_code)
        make_job_folder(run, run_dir, Submit(0, 0, token()))
        with refused("executor.another-before", begun=first):
            begin(auto, path, run_dir, other, NOW, fix=no_code)
        assert begin(auto, path, run_dir, one, NOW, fix=no_code).executor == first
        asked = begin(a_config(executor="local"), path, run_dir, other, NOW, fix=no_code)
        assert asked.executor == "local", "who says which one gets it"

    def test_a_name_that_sbatch_would_read_otherwise_is_refused_before_there_is_a_run(self, tmp_path: Path) -> None:
        for executor in ("slurm", "auto"):
            with refused("run-dir.backslash"):
                run_dir_of(a_config(executor=executor, run_dir="a\\b"), tmp_path / "c.json")
        assert run_dir_of(a_config(executor="local", run_dir="a\\b"), tmp_path / "c.json").path.name == "a\\b"

    @pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"version": 1}'])
    def test_a_damaged_run_file_is_named(self, run_dir: RunDir, text: str) -> None:
        run_dir.run_file.write_text(text)
        with pytest.raises(RunFolderError, match=r"run\.json"):
            load_run(run_dir)

    @pytest.mark.parametrize(
        ("folder", "run_dir", "runtimes"),
        [("a", "b,c", ["apptainer", "singularity"]), ("a:b", "/c", ["apptainer", "ch-run"]), ("a,b", "/c,d", [])],
    )
    def test_a_name_that_would_end_in_the_middle_of_a_bind_is_refused(
        self, tmp_path: Path, folder: str, run_dir: str, runtimes: list[str]
    ) -> None:
        path = tmp_path / folder / "c.json"
        for runtime in runtimes:
            config = a_config(run_dir=run_dir, container={"image": "x.sif", "runtime": runtime})
            with refused("container.separator"):
                run_dir_of(config, path)
        alone = a_config(run_dir=run_dir)
        charliecloud = a_config(run_dir=run_dir, container={"image": "x", "runtime": "ch-run"})
        for config in (alone,) if "ch-run" in runtimes else (alone, charliecloud):
            assert run_dir_of(config, path).path.name == Path(run_dir).name


def rewritten(run_dir: RunDir, **training: Any) -> Run:
    """As if the run had been begun with these settings where they were good."""
    value = json.loads(run_dir.run_file.read_text())
    value["config"]["training"] |= training
    run_dir.run_file.write_text(json.dumps(value))
    return load_run(run_dir)


class TestPackagesThatAreNotHere:
    """A run is read, shown and stopped by a Python that has not what it trains with."""

    ARM: ClassVar[dict[str, Any]] = {**TRAINING, "training": {"env": "arm", "algorithm": "ppo"}}

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("gone", "there is no suite 'gone'; known here: "),
            ("gone.module:Suite", r"the suite 'gone\.module:Suite' cannot be loaded \(.*No module named 'gone'"),
        ],
    )
    def test_a_run_is_read_and_only_a_submission_needs_them(self, run_dir: RunDir, name: str, words: str) -> None:
        begun(run_dir, a_config(self.ARM, slots=2, slot_overrides={"1": {"epochs": 5}}))
        run = rewritten(run_dir, env=name)
        assert run.config.training.written["env"] == name
        assert run_view(run_dir).run_name == "toy"
        with refused("config.not-here", slot=0, why=re.compile(rf"^env: {words}")) as told:
            make_job_folder(run, run_dir, Submit(0, 0, token()))
        assert "\n" not in str(told.value)
        assert list(run_dir.jobs.iterdir()) == []

    def test_experiments_that_were_added_are_there_all_the_same(self, run_dir: RunDir) -> None:
        rows = [{"name": "a"}, {"name": "b", "gamma": 0.9}]
        first = begun(run_dir, a_config(self.ARM, experiments=rows, slurm={"max_jobs": 1}))
        ask(run_dir.disk, run_dir.requests, "add", now=NOW, experiments=({"name": "c", "gamma": 0.8},))
        added = load_run(run_dir)
        assert added.identity == training_identity(added.config)
        assert (added.config.slots, len(added.identity or ())) == (3, 3)
        gone = rewritten(run_dir, env="gone")
        assert (gone.config.slots, gone.config.name_of(2), gone.identity) == (3, "c", first.identity)

    def test_what_a_newer_version_would_refuse_goes_on(self, run_dir: RunDir) -> None:
        begun(run_dir, a_config({**TRAINING, "training": {"preset": "tiny", "algorithm": {"name": "sac"}}}))
        moved = {"name": "sac", "random_shift": 2}
        with pytest.raises(ConfigError) as caught:
            a_config({**TRAINING, "training": {"preset": "tiny", "algorithm": moved}})
        assert caught.value.fields["field"] == "training.algorithm.random_shift"
        submitted(rewritten(run_dir, algorithm=moved), run_dir)
        assert json.loads(run_dir.settings(0).read_text())["algorithm"]["random_shift"] == 2


class TestEvidence:
    @pytest.mark.parametrize(
        "name", ["claim", "exit.json", "progress.json", "heartbeat.json", "parent.json", "duplicate-n1-7.json"]
    )
    @pytest.mark.parametrize(
        "text", ["", '{"token": "s0-', "null", "[1]", '"text"', '{"beat": null, "step": "x", "token": 5}']
    )
    def test_a_file_that_is_torn_or_of_another_shape_proves_nothing(
        self, run_dir: RunDir, name: str, text: str
    ) -> None:
        put(run_dir, name, text)
        assert read_evidence(run_dir, 0, 0) == read_evidence(run_dir, 0, 1)

    def test_everything_a_job_leaves_is_read(self, run_dir: RunDir) -> None:
        put(run_dir, "claim", a_claim().model_dump())
        put(run_dir, "exit.json", {"token": token(), "code": 75, "at": NOW, "asked": "deadline", "more": 1})
        put(run_dir, "progress.json", {"step": 12, "total": 99, "checkpoint_step": 10, "steps_per_s": 3.5})
        put(run_dir, "heartbeat.json", {"beat": 7})
        put(run_dir, "parent.json", {"attempt": 1, "step": 5, "checkpoint": "5"})
        put(run_dir, "duplicate-n2-9.json", {"token": token(serial=2)})
        for step in (9, 10):
            (run_dir.attempt(0, 0) / "checkpoints" / str(step)).mkdir(parents=True)
        evidence = read_evidence(run_dir, 0, 0)
        assert evidence.claim == a_claim()
        assert evidence.exit is not None
        assert evidence.progress is not None
        assert (evidence.exit.code, evidence.progress.checkpoint_step, evidence.beat) == (75, 10, 7)
        assert (evidence.start_step, evidence.newest_checkpoint, evidence.duplicates) == (5, 10, (token(serial=2),))

    def test_the_end_of_the_claimants_log_is_read_once_it_ended(self, run_dir: RunDir) -> None:
        put(run_dir, "claim", a_claim().model_dump())
        run_dir.job(token()).mkdir()
        (run_dir.job(token()) / "job-101.err").write_text("x" * 50_000 + "\nKeyError: 'nets'\n")
        put(run_dir, "exit.json", {"token": token(), "code": 1, "at": NOW})
        assert read_evidence(run_dir, 0, 0).log_tail.endswith("KeyError: 'nets'\n")
        assert len(read_evidence(run_dir, 0, 0).log_tail) <= 16_384

    def test_whether_a_job_left_any_output_is_looked_for_where_nobody_has_claimed(self, run_dir: RunDir) -> None:
        gone = Poll(at=NOW)
        ledger = a_run(a_slot().with_attempt(a_job()))
        run_dir.job(token()).mkdir(parents=True)
        (run_dir.job(token()) / "job.sh").touch()
        assert not read_all(run_dir, ledger, gone)[0, 0].has_output
        assert read_all(run_dir, ledger, gone.model_copy(update={"error": "down"}))[0, 0].has_output
        run_dir.attempt(0, 0).mkdir(parents=True)
        (run_dir.attempt(0, 0) / "duplicate-n1-1.json").write_text("{}")
        assert not read_all(run_dir, ledger, gone)[0, 0].has_output
        (run_dir.job(token()) / "job-101.out").touch()
        assert read_all(run_dir, ledger, gone)[0, 0].has_output


class TestStatus:
    def view(self, run_dir: RunDir, *slots: Any, **more: Any) -> RunView:
        with_ledger(run_dir, a_run(*slots, **more))
        return run_view(run_dir)

    def test_numbers_that_are_not_finite_still_give_json(self, run_dir: RunDir) -> None:
        told = '{"step": 1, "total": 9, "checkpoint_step": 0, "loss": NaN, "rate": Infinity, "steps_per_s": NaN'
        told += ', "at": 1}'
        put(run_dir, "progress.json", told)
        until = seen().model_copy(update={"ends_at": NOW + 3600})
        slot = a_slot().with_attempt(a_job(sighting=until), claimed_by=token(), started_at=NOW)
        view = self.view(run_dir, slot)

        def refuse(name: str) -> None:
            raise AssertionError(f"{name} is no JSON")

        json.loads(view.model_dump_json(), parse_constant=refuse)

    @pytest.mark.parametrize(
        "text",
        [
            '{"step": 5, "total": 40, "score": 1.0}',
            '{"step": 5, "total": 40.5, "checkpoint_step": 0}',
            '{"step": "many", "total": null, "checkpoint_step": {}}',
            '{"step": 5, "total": 40, "checkpoint',
            "[1, 2]",
            "",
        ],
    )
    def test_a_report_that_cannot_be_used_is_said_and_an_older_one_is_shown(self, run_dir: RunDir, text: str) -> None:
        put(run_dir, "progress.json", {"step": 3, "total": 40, "checkpoint_step": 3, "score": 0.5, "at": 1})
        over = a_slot().with_attempt(a_job(state=SubmissionState.ENDED), verdict=Verdict.HANDED_OVER)
        slot = over.with_attempt(a_job(token(0, 1), sighting=seen()), claimed_by=token(0, 1))
        (shown,) = self.view(run_dir, slot).slots
        assert (shown.step, shown.progress, shown.warning) == (3, {"score": 0.5}, "")
        put(run_dir, "progress.json", text, attempt=1)
        (shown,) = self.view(run_dir, slot).slots
        assert (shown.state, shown.step, shown.warning) == ("running", 3, UNUSABLE)


class TestRegistry:
    @pytest.fixture
    def home(self, tmp_path: Path) -> dict[str, str]:
        return {"XDG_STATE_HOME": str(tmp_path / "state")}

    def test_a_run_is_found_by_name_by_id_and_by_its_folder(self, run_dir: RunDir, home: dict[str, str]) -> None:
        run = begun(run_dir)
        assert rundir.find_run(str(run_dir.path), home) == run_dir  # by whichever account it was started
        rundir.register(run, run_dir, NOW, home)
        assert rundir.find_run("toy", home) == rundir.find_run(run.run_id, home) == run_dir

    @pytest.mark.parametrize(
        "text",
        [
            "{", "[1]", "{}", '{"run_id": "x", "from": "a later version"}', "\ud800".encode(errors="surrogatepass"),
            *(
                json.dumps({"run_id": "x", "run_name": "other", "run_dir": f"/x{odd}", "registered_at": 0})
                for odd in ("\0", "\udcfc", "\ud800", "y" * 5000)
            ),
        ],
    )  # fmt: skip
    def test_a_damaged_entry_hides_no_other(self, run_dir: RunDir, home: dict[str, str], text: str | bytes) -> None:
        rundir.register(begun(run_dir), run_dir, NOW, home)
        data = text if isinstance(text, bytes) else text.encode()
        (places.runs_folder(home) / "other-00000000.json").write_bytes(data)
        assert rundir.find_run("toy", home) == run_dir


class TestJobFolders:
    def test_the_shared_folder_is_the_runs_own_unless_the_config_names_one(self, run_dir: RunDir) -> None:
        here = run_dir.path.parent.parent
        shared = {"enabled": True, "shared_dir": "group/us", "rows_per_day": 5000, "oldest_client": "0.2"}
        for number, (section, place) in enumerate([({}, run_dir.path / "shared"), (shared, here / "group/us")]):
            run = begun(run_dir, a_config(collaboration=section))
            make_job_folder(run, run_dir, Submit(0, number, token(0, number)))
            spec = json.loads((run_dir.job(token(0, number)) / "job.json").read_text())
            assert (spec["run_id"], spec["run_name"]) == (run.run_id, "toy")
            assert (spec["shared_dir"], spec["accepts_contributions"]) == (str(place), bool(section))
            assert spec["terms"] == ({"rows_per_day": 5000, "oldest_client": "0.2"} if section else {})
            assert place.is_dir()

    def test_the_newest_folders_of_jobs_stay_and_those_that_the_ledger_speaks_of(self, run_dir: RunDir) -> None:
        for number in range(JOBS_KEPT + 4):
            run_dir.job(token(0, number)).mkdir()
            if number != JOBS_KEPT:  # which never was a job
                put(run_dir, "claim", a_claim(token(0, number)).model_dump(), attempt=number)
        ledger = a_run(a_slot().with_attempt(a_job(token(0, 1), state=SubmissionState.ENDED), number=1))
        drop_old_job_folders(run_dir, ledger, {1})
        assert len(list(run_dir.jobs.iterdir())) == JOBS_KEPT + 4, "nothing has ended in slot 0"
        drop_old_job_folders(run_dir, ledger, {0})
        left = sorted(int(path.name.split("-")[1][1:]) for path in run_dir.jobs.iterdir())
        assert left == [1, *(number for number in range(3, JOBS_KEPT + 4) if number != JOBS_KEPT)]

    def test_links_to_output_files_go_with_the_folders_and_nothing_else_does(self, run_dir: RunDir) -> None:
        for number in range(JOBS_KEPT + 1):
            run_dir.job(token(0, number)).mkdir()
            put(run_dir, "claim", a_claim(token(0, number)).model_dump(), attempt=number)
            put(run_dir, "exit.json", {"token": token(0, number), "code": 75, "asked": "x", "at": NOW}, attempt=number)
            for name in (f"job-{number}.out", f"job-{number}.err"):
                (run_dir.job(token(0, number)) / name).write_text("said")
                link = run_dir.logs / name.replace("job-", "slurm-")
                link.symlink_to(f"../jobs/{token(0, number)}/{name}")
        (run_dir.logs / "notes.txt").write_text("mine")
        (run_dir.logs / "slurm-0.err").unlink()
        (run_dir.logs / "slurm-0.err").write_text("somebody else's")
        (run_dir.job(token(0, 0)) / "job-7.out").write_text("of an id that came again")
        (run_dir.logs / "elsewhere.out").symlink_to("/nowhere")
        drop_old_job_folders(run_dir, a_run(a_slot()), {0})
        assert not run_dir.job(token(0, 0)).exists()
        left = {path.name for path in run_dir.logs.iterdir()}
        kept = {f"slurm-{number}.{end}" for number in range(1, JOBS_KEPT + 1) for end in ("out", "err")}
        assert left == kept | {"notes.txt", "elsewhere.out", "slurm-0.err"}
        assert all(path.read_text() == "said" for path in run_dir.logs.glob("slurm-*.out"))


#: What may happen to a copy, in shell.
HARM = {
    "an edit": "echo 'raise SystemExit' >> orchestrator/shim.py",
    "a file less": "rm anchorleg/files.py",
    "a module before Python's own": "echo 'raise SystemExit' > json.py",
    "a compiled one": "touch signal.pyc",
    "a package more": "mkdir json; touch json/__init__.py",
    "a folder for programs": "cd for-programs; rm anchorleg; cp -r ../anchorleg .; echo >> anchorleg/job.py",
    "another one for programs": "ln -sfn /tmp for-programs/anchorleg",
}


class TestFixedCode:
    def test_the_same_code_is_copied_once_and_whole(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        package = tmp_path / "package"
        package.mkdir()
        (package / "__init__.py").write_text("one")
        (package / "__pycache__").mkdir()
        (package / "__pycache__" / "x.pyc").touch()
        monkeypatch.setattr("orchestrator.run.code.package_folder", lambda _: package)
        first = fix_code(tmp_path / "code")
        assert fix_code(tmp_path / "code") == first
        (package / "__init__.py").write_text("two")
        second = fix_code(tmp_path / "code")
        assert sorted(path.name for path in (tmp_path / "code").iterdir()) == sorted([first, second])
        assert (tmp_path / "code" / first / "orchestrator" / "__init__.py").read_text() == "one"
        assert not list((tmp_path / "code").rglob("*.pyc"))
        assert (tmp_path / "code" / first / "orchestrator" / "templates" / "train.sbatch").is_file()

    @pytest.mark.parametrize("harm", HARM)
    def test_a_job_imports_nothing_of_a_copy_that_is_not_what_its_name_says(self, harm: str, tmp_path: Path) -> None:
        job = tmp_path / "job"
        job.mkdir()
        copy = tmp_path / "code" / fix_code(tmp_path / "code")
        (copy / "anchorleg" / "__pycache__").mkdir()
        (copy / "anchorleg" / ".job.py.1.tmp").touch()  # `start` mends a file at this moment
        script = job_script(
            a_config(), executor="local", run_name="toy", slot=0, job_dir=job, code_dir=copy, python=sys.executable
        )

        def ran() -> str:
            done = subprocess.run(
                ["bash"], input=script, capture_output=True, text=True, timeout=PATIENCE_S, check=False
            )
            assert done.returncode != 0
            return done.stderr

        assert "job.json" in ran(), "the shim came so far"
        subprocess.run(["bash", "-c", HARM[harm]], cwd=copy, check=True, timeout=PATIENCE_S)
        assert "job.json" not in (said := ran())
        assert f"{copy} is not the copy" in said.splitlines()[-1]
        assert fix_code(tmp_path / "code") == copy.name
        assert "job.json" in ran(), "`start` made it whole"

    def test_what_programs_may_import_lies_apart_and_moves_with_the_run(self, tmp_path: Path) -> None:
        copy = tmp_path / "code" / fix_code(tmp_path / "code")
        (tmp_path / "code").rename(tmp_path / "moved")
        links = tmp_path / "moved" / copy.name / FOR_PROGRAMS
        assert sorted(path.name for path in links.iterdir()) == ["anchorleg", "orchestrator"]
        assert (links / "anchorleg" / "job.py").samefile(links.parent / "anchorleg" / "job.py")
        assert (links / "orchestrator" / "integrations" / "rng.py").is_file()
