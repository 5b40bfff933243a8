"""`"role": "actors"`: what the config may hold, what a job runs, and who may come into whose folder."""

from __future__ import annotations

import grp
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from as_user import UID, as_ordinary_user, ordinary_folder
from builders import NOW, no_code
from refused import refused

from orchestrator.config import RunConfig, parse_config
from orchestrator.decisions.models import Submit
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.rundir import Run, RunDir
from orchestrator.run.sharing import share_with, troubles
from orchestrator.run.submission import job_spec

GROUP = grp.getgrgid(os.getegid()).gr_name
#: An account that this machine does not have.
STRANGER = 54_321


def actors_config(shared: Path | str = "theirs", **more: Any) -> RunConfig:
    value = {"run_name": "friend", "executor": "local", "role": "actors", "actors": {"shared_dir": str(shared)}}
    return parse_config(value | more, "c.json")


def begun(tmp_path: Path, config: RunConfig) -> tuple[Run, RunDir]:
    run_dir = RunDir(tmp_path / "runs" / config.run_name)
    prepare_folder(run_dir)
    return begin(config, tmp_path / "c.json", run_dir, {}, NOW, fix=no_code), run_dir


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    folder = tmp_path / "theirs"
    folder.mkdir()
    return folder


class TestAJob:
    def spec(self, tmp_path: Path, **more: Any) -> dict[str, Any]:
        run, run_dir = begun(tmp_path, actors_config(**more))
        return job_spec(run, run_dir, Submit(0, 0, "s0-a0-00000000"))

    def test_it_plays_where_it_is_needed_and_hands_in_what_it_plays(self, tmp_path: Path, theirs: Path) -> None:
        spec = self.spec(tmp_path, slurm={"cpus_per_task": 4})
        assert spec["command"][1:] == [
            "-P", "-m", "trainer", "actors", "--contribute", "--direct", "--shared-dir", str(theirs),
            "--policy", "needed", "--num-envs", "8", "--device", "cpu",
        ]  # fmt: skip
        assert spec["shared_dir"] == str(theirs)


def owners_config(**more: Any) -> RunConfig:
    value = {"run_name": "mine", "executor": "local", "collaboration": {"enabled": True, "group": GROUP} | more}
    return parse_config(value, "c.json")


class TestTheOwnersFolder:
    def test_start_opens_it_to_the_group_for_reading_and_to_nobody_else(self, tmp_path: Path) -> None:
        _, run_dir = begun(tmp_path, owners_config())
        assert mode_of(run_dir.path / "shared") == 0o2750

    def test_what_was_in_it_before_is_opened_too_and_no_link_is_followed(self, tmp_path: Path, theirs: Path) -> None:
        slot = theirs / "v1" / "incoming" / "a-0" / "0"
        slot.mkdir(parents=True)
        slot.chmod(0o3770)
        (theirs / "v1" / "policy").write_text("x")
        private = tmp_path / "private"
        private.write_text("x")
        private.chmod(0o600)
        (theirs / "elsewhere").symlink_to(private)
        share_with(theirs, GROUP)
        assert mode_of(slot) == 0o3770
        assert mode_of(theirs / "v1" / "policy") == 0o640
        assert {mode_of(path) for path in (theirs, theirs / "v1", slot.parent)} == {0o2750}
        assert mode_of(private) == 0o600

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other accounts")
    def test_what_others_have_in_it_is_passed_over_and_the_folder_itself_is_not(self) -> None:
        with ordinary_folder() as home:
            slot, theirs = home / "shared" / "v1" / "incoming" / "a-0" / "0", home / "theirs"
            slot.mkdir(parents=True)
            (slot / "given").write_text("rows")
            (slot / "folder").mkdir()
            (slot / "folder" / "inner").write_text("x")
            (home / "shared" / "v1" / "policy").write_text("x")
            theirs.mkdir()
            for path in (home / "shared", *(home / "shared").rglob("*")):
                foreign = slot in path.parents
                os.chown(path, STRANGER if foreign else UID, STRANGER if foreign else UID)
            (slot / "given").chmod(0o604)
            os.chown(theirs, STRANGER, UID)
            as_ordinary_user(lambda: share_with(home / "shared", grp.getgrgid(UID).gr_name))
            assert (mode_of(home / "shared"), mode_of(home / "shared" / "v1" / "policy")) == (0o2750, 0o640)
            given = (slot / "given").stat()
            assert (given.st_uid, given.st_gid, stat.S_IMODE(given.st_mode)) == (STRANGER, STRANGER, 0o604)

            def not_given() -> None:
                with refused("group.not-given", path=theirs):
                    share_with(theirs, grp.getgrgid(UID).gr_name)

            as_ordinary_user(not_given)

    def test_a_link_that_is_put_there_meanwhile_changes_nothing_elsewhere(
        self, tmp_path: Path, theirs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        private, given = tmp_path / "private", theirs / "given"
        private.write_text("x")
        private.chmod(0o600)
        given.write_text("rows")

        def swap(path: object) -> None:
            if str(path).endswith("given") and not given.is_symlink():
                given.unlink()
                given.symlink_to(private)

        real_chown, real_open = os.chown, os.open

        def chown(path: Any, *words: Any, **more: Any) -> None:
            swap(path)
            real_chown(path, *words, **more)

        def opened(path: Any, *words: Any, **more: Any) -> int:
            swap(path)
            return real_open(path, *words, **more)

        monkeypatch.setattr(os, "chown", chown)
        monkeypatch.setattr(os, "open", opened)
        share_with(theirs, GROUP)
        monkeypatch.undo()
        assert given.is_symlink()
        assert (mode_of(private), mode_of(theirs)) == (0o600, 0o2750)

    def test_another_name_of_a_file_of_ours_that_somebody_put_there_gives_nothing(
        self, tmp_path: Path, theirs: Path
    ) -> None:
        private, slot = tmp_path / "private", theirs / "v1" / "incoming" / "a-0" / "0"
        slot.mkdir(parents=True)
        slot.chmod(0o3770)
        for path in (private, theirs / "ours"):
            path.write_text("x")
            path.chmod(0o600)
        (slot / "given").hardlink_to(private)
        (theirs / "again").hardlink_to(theirs / "ours")  # as averaged policies are
        share_with(theirs, GROUP)
        assert (mode_of(private), mode_of(theirs / "ours")) == (0o600, 0o640)

    def test_one_that_the_group_could_write_is_closed_with_all_that_is_in_it(self, theirs: Path) -> None:
        inbox = theirs / "v1" / "inbox" / "ben"
        inbox.mkdir(parents=True)
        for folder in (theirs, inbox.parent.parent, inbox.parent, inbox):
            folder.chmod(0o2770)
        share_with(theirs, GROUP)
        assert {mode_of(folder) for folder in (theirs, inbox.parent.parent, inbox.parent, inbox)} == {0o2750}

    def test_who_may_replace_the_runs_folder_is_told(self, tmp_path: Path) -> None:
        above = tmp_path / "above"
        above.mkdir()

        def told() -> list[str]:
            return [line.partition(" can replace ")[0] for line in troubles(RunDir(above / "a" / "run"))]

        for mode, who in ((0o755, []), (0o777, ["everybody"]), (0o1777, [])):
            above.chmod(mode)
            assert told() == who
        if os.geteuid() == 0:
            os.chown(above, -1, STRANGER)
            above.chmod(0o775)
            assert told() == [f"members of {STRANGER}"]
            os.chown(above, STRANGER, -1)
            above.chmod(0o755)
            assert told() == [f"its owner account {STRANGER}"]
