"""A run's folder that is moved, copied, mounted under another name, or emptied while its jobs wait and work."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from mounts import bound
from relay import NewRelay, Relay
from slurm_cluster import SlurmCluster
from slurm_relay import ever, on_slurm, start_impatient


@pytest.fixture(params=["local", pytest.param("slurm", marks=pytest.mark.slurm)])
def relay(request: pytest.FixtureRequest, new_relay: NewRelay) -> Relay:
    """A run, held at step 10, whose job works while no controller lives."""
    make = new_relay
    if request.param == "slurm":
        make = partial(on_slurm, new_relay, request.getfixturevalue("slurm"))
    relay = make(total=60, held_at=10)
    relay.killed("between-ticks", "start")
    relay.wait_for_step(10)
    return relay


def with_folder(relay: Relay, folder: Path) -> tuple[str, str]:
    """The option of a command that means the run with its folder there."""
    value = json.loads(relay.config.read_text()) | {"run_dir": str(folder)}
    path = relay.folder / f"{folder.name}.json"
    path.write_text(json.dumps(value))
    return "--config", str(path)


def submissions(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "jobs").iterdir())


@pytest.mark.long
def test_a_run_that_was_moved_under_its_job_goes_on_when_that_has_ended(relay: Relay) -> None:
    there, here = relay.run_dir, relay.folder / "runs" / "moved"
    job = relay.read("claim", 0)["job_id"]
    there.rename(here)
    moved = with_folder(relay, here)

    for words in (("start", *moved), ("start", "--via", "daemon", *moved)):
        relay.run(*words).assert_refused(3, f"job {job}", str(there), "[run.moved]")
    assert relay.run("tick", "--run-dir", str(here)).code == 0  # of a crontab, say
    assert len(submissions(here)) == 1
    assert relay.programs(), "it works on, and nobody works beside it"

    assert relay.run("stop", "--now", "toy", cwd=Path("/")).code == 0
    relay.wait_for(lambda: not relay.programs(), "the end of the job")
    relay.release()
    again = relay.run("start", *moved)

    assert again.code == 0, again.words
    steps = [n for _, n in relay.journal(0)]
    assert steps[-60:] == list(range(1, 61)), "nothing was saved: it began anew, and worked alone"
    assert not there.exists()


@pytest.mark.long
def test_a_copy_of_a_run_leaves_the_jobs_of_the_run_alone(relay: Relay) -> None:
    copy = relay.folder / "runs" / "copy"
    shutil.copytree(relay.run_dir, copy, symlinks=True)
    job = relay.read("claim", 0)["job_id"]

    relay.run("start", *with_folder(relay, copy)).assert_refused(3, f"job {job}", str(relay.run_dir), "[run.copied]")
    assert relay.run("tick", "--run-dir", str(copy)).code == 0
    for ledger in copy.glob("ledger-*.json"):  # not even a copy that has forgotten everything takes them for its own
        ledger.unlink()
    relay.run("start", *with_folder(relay, copy)).assert_refused(3, f"job {job}")

    assert len(submissions(copy)) == 1
    controller = relay.spawn("start")
    relay.release()
    assert relay.ended(controller) == 0, relay.output()
    relay.assert_exactly_once(60)
    assert relay.attempts() == [0]


@pytest.mark.long
@pytest.mark.slurm
def test_a_run_under_another_name_of_its_folder_has_its_waiting_jobs(new_relay: NewRelay, slurm: SlurmCluster) -> None:
    relay = on_slurm(new_relay, slurm, total=60, slurm={"extra": ["--hold"]})
    relay.killed("between-ticks", "start")
    (waiting,) = slurm.squeue()
    alias = relay.folder / "alias"
    with bound(relay.folder / "runs", alias):
        named = with_folder(relay, alias / "toy")
        controller = relay.spawn("start", *named)

        relay.wait_for(lambda: relay.ledger()["epoch"] == 1, "a look of the new controller")
        sightings = [s["sighting"]["kind"] for a in relay.ledger()["slots"][0]["attempts"] for s in a["submissions"]]
        assert sightings == ["seen"]
        slurm.ask("scontrol", "release", str(waiting.job_id))
        assert relay.ended(controller) == 0, relay.output()
    relay.assert_exactly_once(60)
    assert [row.job_id for row in ever(slurm, relay)] == [waiting.job_id]


@pytest.mark.long
@pytest.mark.parametrize("who", ["a controller", "the job"])
@pytest.mark.parametrize("executor", ["local", pytest.param("slurm", marks=pytest.mark.slurm)])
def test_a_job_whose_folder_was_removed_saves_before_it_ends(
    request: pytest.FixtureRequest, new_relay: NewRelay, executor: str, who: str
) -> None:
    make = new_relay if executor == "local" else partial(on_slurm, new_relay, request.getfixturevalue("slurm"))
    by_itself = {"training": {"max_runtime_seconds": 15}} if who == "the job" else {}
    relay = make(total=60, held_at=10, **by_itself)
    relay.killed("between-ticks", "start")
    relay.wait_for_step(10)

    shutil.rmtree(relay.run_dir / "jobs", ignore_errors=True)  # the job makes its folder again at once

    if who == "a controller":
        assert relay.run("stop").code == 0
        assert relay.events("asked to hand over")
    relay.wait_for((relay.attempt_dir(0) / "exit.json").exists, "the job to hand over")
    assert relay.read("exit.json", 0)["code"] == 75
    relay.release()
    again = relay.run("start", "--set", "training={}")
    assert again.code == 0, again.words
    relay.assert_exactly_once(60)


@pytest.mark.long
@pytest.mark.slurm
def test_what_a_waiting_job_needs_is_made_again(new_relay: NewRelay, slurm: SlurmCluster) -> None:
    relay = on_slurm(new_relay, slurm, total=60, slurm={"extra": ["--hold"]})
    relay.killed("between-ticks", "start")
    (waiting,) = slurm.squeue()
    for name in ("jobs", "slots", "code", "requests", "control", "logs"):
        shutil.rmtree(relay.run_dir / name, ignore_errors=True)

    controller = start_impatient(relay, record=0)  # else a minute, in which another machine's files may show
    relay.wait_for(lambda: len(relay.events("made again")) == 2, "its folders")
    assert {event["what"].partition("/")[0] for event in relay.events("made again")} == {"jobs", "slots"}
    slurm.ask("scontrol", "release", str(waiting.job_id))

    assert relay.ended(controller) == 0, relay.output()
    relay.assert_exactly_once(60)
    assert [row.job_id for row in ever(slurm, relay)] == [waiting.job_id]
