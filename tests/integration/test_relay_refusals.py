"""What cannot be done is refused in one sentence with its own exit code, and nothing is lost or overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from full_disk import fill
from relay import NewRelay


@pytest.mark.long
@pytest.mark.parametrize("name", ["ledger-0.json", "run.json", "control/1.json", "lease/0"])
@pytest.mark.parametrize("damage", [b'{"version": 1, "run', b"\x00\x00\x00\x00"])
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


def test_a_full_disk_at_the_start(new_relay: NewRelay, small_disk: Path) -> None:
    relay = new_relay(total=10, run_dir=f"{small_disk}/run")
    ballast = fill(small_disk)

    relay.run("start").assert_refused(7, "No space left on device", str(small_disk))

    ballast.unlink()
    assert relay.run("start").code == 0
    assert relay.counted() == 10
