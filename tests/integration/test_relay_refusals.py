"""What cannot be done is refused in one sentence with its own exit code, and nothing is lost or overwritten."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
from io import FileIO
from pathlib import Path

import pytest
from daemons import PATIENCE_S
from mounts import mounted
from relay import NewRelay, Relay


def test_a_config_that_is_not_there(new_relay: NewRelay) -> None:
    relay = new_relay()
    relay.config.unlink()

    relay.run("start").assert_refused(2, "cluster_config.json", "[config.no-file]")
    relay.run("init", "nowhere/new.json").assert_refused(2, "nowhere/new.json", "[init.no-folder]")


def test_a_config_that_is_no_json(new_relay: NewRelay) -> None:
    relay = new_relay()
    relay.config.write_text('{\n  "slots": 2,\n  "lead_seconds" 2\n}\n')

    relay.run("start").assert_refused(2, "line 3, column 18")


def test_an_unknown_field_and_the_one_that_was_meant(new_relay: NewRelay) -> None:
    relay = new_relay(slurm={"time_limt": "0:00:30"})

    relay.run("start").assert_refused(2, "slurm.time_limt", '"time_limit"', "[config.unknown-field]")
    assert not relay.run_dir.exists()


def test_a_walltime_too_short_to_train_in(new_relay: NewRelay) -> None:
    relay = new_relay(slurm={"time_limit": "0:00:21"})

    relay.run("start").assert_refused(2, "0:00:21", "22 s", "[config.walltime-too-short]")


@pytest.mark.long
@pytest.mark.parametrize("name", ["ledger-0.json", "run.json", "control/1.json", "lease/0"])
@pytest.mark.parametrize("damage", [b"", b'{"version": 1, "run', b"\x00\x00\x00\x00", b"[]\n"])
def test_a_damaged_file_is_named_and_left_as_it_is(new_relay: NewRelay, name: str, damage: bytes) -> None:
    relay = new_relay(total=1000)
    relay.killed("after-intent", "start")
    path = relay.run_dir / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(damage)
    before = relay.snapshot()

    for words in (("start",), ("stop",), ("status",), ("tick",)):
        relay.run(*words).assert_refused(3, str(path))

    assert before.items() <= relay.snapshot().items()
    assert path.read_bytes() == damage
    assert list(relay.run_dir.glob("jobs/*/local.json")) == []


@pytest.mark.long
def test_the_ledger_of_another_run_is_refused(new_relay: NewRelay) -> None:
    relay, other = new_relay("one", total=1), new_relay("two", total=1)
    assert relay.run("start").code == 0
    assert other.run("start").code == 0
    (relay.run_dir / "ledger-0.json").write_bytes((other.run_dir / "ledger-0.json").read_bytes())

    relay.run("start").assert_refused(3, "ledger-0.json", "run two-", "[ledger.damaged]")


@pytest.mark.long
def test_a_damaged_ledger_names_the_last_good_copy(new_relay: NewRelay) -> None:
    relay = new_relay(total=1)
    assert relay.run("start").code == 0
    assert relay.run("start").code == 0
    (relay.run_dir / "ledger-1.json").write_text("{")

    relay.run("start").assert_refused(3, "ledger-1.json", f"{relay.run_dir}/ledger-0.json", "[ledger.damaged]")


def test_a_run_folder_where_no_folder_can_be(new_relay: NewRelay) -> None:
    relay = new_relay(run_dir="data/pace.txt/run")

    relay.run("start").assert_refused(7, f"{relay.folder}/data/pace.txt/run", "[run-dir.unwritable]")


def test_a_run_folder_that_may_not_be_written(new_relay: NewRelay, tmp_path: Path) -> None:
    relay = new_relay()
    relay.run_dir.mkdir(parents=True)
    relay.run_dir.chmod(0o555)
    is_root = os.geteuid() == 0  # whom permissions do not stop
    with mounted(relay.run_dir, "ro") if is_root else contextlib.nullcontext():
        relay.run("start").assert_refused(7, str(relay.run_dir), "[run-dir.unwritable]")


def test_another_training_is_refused_unless_it_is_forked(new_relay: NewRelay) -> None:
    training = {"preset": "tiny", "seed": 3}
    relay = new_relay(training=training)
    relay.config.write_text(
        json.dumps({key: value for key, value in json.loads(relay.config.read_text()).items() if key != "command"})
    )
    relay.killed("after-intent", "start")
    begun = relay.run_dir / "slots/0/attempts/0"  # a run that never had a job could still be changed
    begun.mkdir(parents=True)
    (begun / "claim").write_text("{}")
    run_file = (relay.run_dir / "run.json").read_bytes()
    run_id = json.loads(run_file)["run_id"]

    other = ("start", "--set", "training.seed=4")
    relay.run(*other).assert_refused(5, str(relay.run_dir), "toy-2", "[run.other-training]")
    assert (relay.run_dir / "run.json").read_bytes() == run_file

    relay.killed("after-intent", *other, "--fork", "toy-2")
    forked = json.loads((relay.folder / "runs" / "toy-2" / "run.json").read_text())
    assert forked["run_id"].startswith("toy-2-")
    assert forked["forked_from"] == run_id
    assert forked["config"]["training"]["seed"] == 4
    assert (relay.run_dir / "run.json").read_bytes() == run_file
    relay.run(*other, "--fork", "toy-2").assert_refused(2, "toy-2", "[fork.is-there]")


def test_a_run_that_nobody_knows(new_relay: NewRelay) -> None:
    relay = new_relay(total=1)
    assert relay.run("start").code == 0

    relay.run("status", "tyo").assert_refused(8, '"tyo"', '"toy"', "[run.unknown]")


def fill_up(file: FileIO) -> None:
    while True:
        file.write(bytes(4096))


def fill(where: Path) -> Path:
    ballast = where / "ballast"
    with open(ballast, "wb", buffering=0) as file, pytest.raises(OSError, match="No space left on device"):
        fill_up(file)
    return ballast


def test_a_full_disk_at_the_start(new_relay: NewRelay, small_disk: Path) -> None:
    relay = new_relay(total=10, run_dir=f"{small_disk}/run")
    ballast = fill(small_disk)

    relay.run("start").assert_refused(7, "No space left on device", str(small_disk))

    ballast.unlink()
    assert relay.run("start").code == 0
    assert relay.counted() == 10


@pytest.mark.long
def test_a_disk_that_fills_up_loses_nothing(new_relay: NewRelay, small_disk: Path) -> None:
    relay = new_relay(total=60, run_dir=f"{small_disk}/run", training={"max_runtime_seconds": 1}, held_at=20)
    run_dir = small_disk / "run"
    controller = relay.spawn("start")
    relay.wait_for_step(5)

    ballast = fill(small_disk)
    relay.wait_for(lambda: "No space left on device" in relay.output(), "the controller to say so")
    assert json.loads((run_dir / "ledger-0.json").read_text())["epoch"] == 0
    ballast.unlink()
    relay.release()

    assert relay.ended(controller) == 0, relay.output()
    assert relay.counted() == 60
    assert json.loads(relay.run("status", "--json").out)["state"] == "finished"


@pytest.mark.long
def test_a_file_that_may_not_grow_is_a_sentence_too(new_relay: NewRelay) -> None:
    relay = new_relay(total=10)
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "start"],
        cwd=relay.folder, env=relay.env, capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY)),
    )  # fmt: skip

    assert done.returncode == 7, done.stdout + done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert relay.run("start").code == 0
    relay.assert_exactly_once(10)


@pytest.mark.long
def test_a_start_that_was_refused_leaves_the_run_to_the_next_one(new_relay: NewRelay) -> None:
    relay: Relay = new_relay(total=5)
    relay.run("start", "--set", 'training={"seed": -1}').assert_refused(2, "training.seed")

    assert relay.run("start").code == 0
    relay.assert_exactly_once(5)
