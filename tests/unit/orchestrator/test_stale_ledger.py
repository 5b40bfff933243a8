"""Where nobody has written what happened for too long, every screen says so, since when, and why if that is known. What
the ledger does not say yet, or says no more, is not shown from it.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from builders import NOW, a_claim, a_job, a_run, a_slot, no_code, seen, token

from orchestrator.config import parse_config
from orchestrator.decisions.verdicts import NO_INODES
from orchestrator.processes import myself
from orchestrator.run import begin as beginning
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.lease import TICKS_MISSED, Owner
from orchestrator.run.ledger import save_ledger, write_control
from orchestrator.run.rundir import RunDir
from orchestrator.screens import reading
from orchestrator.screens.cells import stale_words
from orchestrator.screens.explain import explain, explanation_lines
from orchestrator.screens.goodput import goodput_lines, goodput_of
from orchestrator.screens.reading import LATE_LOOK_S, Keeper, keeper, run_view
from orchestrator.screens.runview import RunView, StaleLedger
from orchestrator.screens.status import marks, plain_lines
from orchestrator.screens.timeline import clock
from viewer.troubles import troubles_of

CONTROLLER = Keeper("process 7 on login1")
#: On Slurm, whose queue is asked every 30 s.
DUE_S = 40.0


class Place:
    """A run whose ledger says that a job trains. `left`: bytes on its full disk."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "keeper", lambda *_: self.keeper)
        monkeypatch.setattr(reading, "left_on_full_disk", lambda _: self.left)
        self.keeper: Keeper | None = CONTROLLER
        self.left: int | None = None
        self.run_dir = RunDir(path / "runs" / "toy")
        prepare_folder(self.run_dir)
        config = {"run_name": "toy", "executor": "slurm", "command": ["true"], "slurm": {"time_limit": "4:00:00"}}
        (path / "sbatch").touch(0o755)
        environ = {"PATH": str(path)}
        run = begin(parse_config(config, "c.json"), path / "c.json", self.run_dir, environ, NOW, fix=no_code)
        at_work = {"claimed_by": token(), "started_at": NOW - 500, "heartbeat": 9, "heartbeat_changed_at": NOW - 50}
        self.ledger = a_run(a_slot().with_attempt(a_job(sighting=seen()), **at_work), run_id=run.run_id)
        attempt = self.run_dir.attempt(0, 0)
        attempt.mkdir(parents=True)
        (attempt / "claim").write_text(a_claim().model_dump_json())

    def written(self, ago_s: float) -> Place:
        save_ledger(self.run_dir, self.ledger, NOW - ago_s)
        return self

    def view(self) -> RunView:
        return run_view(self.run_dir, NOW)

    def explained(self) -> list[str]:
        return explanation_lines(explain(run_view(self.run_dir, NOW, events=True), 0, NOW), NOW)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("ago_s", "left", "why"),
    [(DUE_S, 4096, "the disk is full (4,096 bytes free in"), (LATE_LOOK_S + 1, None, "cannot write (check the quota)")],
)
def test_all_screens_say_since_when_and_why(place: Place, ago_s: float, left: int | None, why: str) -> None:
    place.left = left
    fresh = marks(place.written(0.0).view())
    view = place.written(ago_s).view()
    since = clock(NOW - ago_s, NOW)

    assert view.stale is not None
    assert (view.stale.since, view.stale.free_bytes) == (NOW - ago_s, left)
    goodput = goodput_of(run_view(place.run_dir, NOW, jobs=None), NOW)
    assert goodput.stale == view.stale
    for lines in (plain_lines(view, NOW), place.explained(), goodput_lines(goodput)):
        assert [since in line for line in lines if why in line] == [True]
    (trouble,) = troubles_of(view, NOW)
    assert since in trouble.words
    assert marks(view)["run"] != fresh["run"]  # `status --watch` in a pipe prints it


def test_a_disk_without_inodes_is_not_said_to_be_full() -> None:
    assert "full" not in stale_words(StaleLedger(since=NOW, free_bytes=0, out_of_inodes=True), NOW, "/runs/toy")


@pytest.mark.parametrize("no_inode", [False, True])
def test_a_run_that_exists_is_not_sent_to_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_inode: bool
) -> None:
    monkeypatch.setattr(beginning, "is_out_of_inodes", lambda _: no_inode)
    run_dir, full = RunDir(tmp_path), OSError(errno.ENOSPC, "no space")
    new, advice = (beginning.unwritable(run_dir, full).fields[name] for name in ("why", "advice"))
    run_dir.run_file.touch()
    assert (new, "another folder" in str(advice)) == (NO_INODES if no_inode else "no space", True)
    assert "another folder" not in str(beginning.unwritable(run_dir, full).fields["advice"])


def test_on_a_full_disk_nothing_is_submitted(place: Place) -> None:
    place.left, place.ledger = 0, a_run(a_slot(), run_id=place.ledger.run_id)
    lines = place.written(DUE_S).explained()
    assert lines[1] == "  next: a job is submitted once the disk has room"
    assert "no new job now: the run folder's disk has no room" in lines[2]


def test_a_job_that_has_told_its_end_is_not_said_to_train(place: Place) -> None:
    exit_json = place.run_dir.attempt(0, 0) / "exit.json"
    exit_json.write_text(f'{{"code": 0, "at": {NOW - 60}, "token": "{token()}"}}')
    assert place.written(0.0).view().slots[0].why == ""
    assert place.written(LATE_LOOK_S + 1).view().slots[0].why == "its job ended, and no controller has checked since"


@pytest.mark.parametrize(
    ("ago_s", "by", "left"),
    [
        (DUE_S, CONTROLLER, None),
        (LATE_LOOK_S, CONTROLLER, None),
        (DUE_S - 10, CONTROLLER, 0),
        (9 * LATE_LOOK_S, None, None),
        (DUE_S, Keeper("`orchestrator tick`", 60.0), 0),
    ],
    ids=["new", "nearly late", "full, and nothing is due", "nobody looks after it", "full, and no tick is due"],
)
def test_otherwise_the_ledger_is_believed(place: Place, ago_s: float, by: Keeper | None, left: int | None) -> None:
    place.keeper, place.left = by, left
    assert place.written(ago_s).view().stale is None
    assert goodput_of(run_view(place.run_dir, NOW, jobs=None), NOW).stale is None


def test_a_stopped_slot_waits_for_nothing(place: Place) -> None:
    slots = (a_slot(0, why="waits for a free job: 2 of 2 are taken"), a_slot(1, why="the disk is full"))
    place.ledger = a_run(*slots, run_id=place.ledger.run_id)
    write_control(place.run_dir, "stop", now=NOW, by="stop")
    assert [(slot.state, slot.why) for slot in place.written(0.0).view().slots] == [
        ("stopped", ""), ("stopped", "the disk is full")
    ]  # fmt: skip


def test_a_run_that_is_over_waits_for_nobody(place: Place) -> None:
    place.left, place.ledger = 0, a_run(a_slot(status="finished"), run_id=place.ledger.run_id)
    assert place.written(DUE_S).view().stale is None


class TestTicksOfACrontab:
    def looked(self, run_dir: RunDir, epoch: int, ago_s: float, command: str = "tick") -> None:
        owner = Owner(epoch=epoch, process=myself(), since=NOW - ago_s, command=command)
        (run_dir.lease / str(epoch)).write_text(owner.model_dump_json())
        (run_dir.lease / f"{epoch}.released").write_text("{}")

    @pytest.mark.parametrize(("every_s", "often"), [(61.0, "once a minute"), (298.0, "every 5 minutes")])
    def test_they_look_after_the_run_until_they_stay_away(self, place: Place, every_s: float, often: str) -> None:
        run_dir = place.run_dir
        for late, is_there in ((0.0, True), (TICKS_MISSED * every_s, True), (TICKS_MISSED * every_s + 1, False)):
            self.looked(run_dir, 7, every_s + late)
            self.looked(run_dir, 8, late)
            found = keeper(run_dir, NOW)
            assert (found is not None) is is_there
            if found is not None:
                assert (found.words, found.every_s) == (f"`orchestrator tick` on {myself().host}, {often}", every_s)

    @pytest.mark.parametrize(
        ("before", "last"),
        [
            ((7, 70.0, "start"), (8, 10.0, "tick")),
            ((7, 70.0, "tick"), (8, 10.0, "tick --failover")),
            ((7, 3700.0, "tick"), (8, 10.0, "tick")),
            ((6, 70.0, "tick"), (8, 10.0, "tick")),
        ],
        ids=["one", "of a job", "by a person, once an hour", "none between"],
    )
    def test_single_ticks_are_nobody(
        self, place: Place, before: tuple[int, float, str], last: tuple[int, float, str]
    ) -> None:
        self.looked(place.run_dir, *before)
        self.looked(place.run_dir, *last)
        assert keeper(place.run_dir, NOW) is None
