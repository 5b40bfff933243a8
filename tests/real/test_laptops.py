"""Two laptops and a stranger: weights flow out of a job on a real Slurm, experience flows into its replay."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from daemons import PATIENCE_S, wait_for
from laptops import Machine, a_training
from relay import NewRelay, Relay
from slurm_cluster import SlurmCluster

from syncd import store
from syncd.errors import RemoteError
from syncd.outbox import Outbox
from trainer.history.read import read
from trainer.sharing.judge import LEAST

pytestmark = [pytest.mark.slurm, pytest.mark.trainer]

VERSIONS = 6


def newest_of(shared: Path) -> store.Version | None:
    places = store.Shared(shared).slots()
    manifest = store.newest(places[0]) if places else None
    return manifest.version if manifest else None


def follow(shared: Path, mirrors: list[Path], versions: int) -> None:
    """Wait until each of the next `versions` publications, or a newer one, was on every mirror."""
    seen: set[store.Version] = set()

    def all_there() -> bool:
        version = newest_of(shared)
        if version is not None and len(seen) < versions:
            seen.add(version)
        here = [newest_of(mirror) for mirror in mirrors]
        return len(seen) == versions and all(one is not None and one >= max(seen) for one in here)

    wait_for(all_there, f"{versions} publications on every mirror")


def rows_of(relay: Relay) -> list[dict[str, Any]]:
    return read(relay.run_dir / "slots" / "0")


def journal_of(relay: Relay) -> list[dict[str, Any]]:
    """What entered the learner's replay from outside, over all its jobs."""
    journals = sorted((relay.run_dir / "slots" / "0" / "attempts").glob("*/contributions.jsonl"))
    return [json.loads(line) for journal in journals for line in journal.read_text().splitlines()]


def contributed(relay: Relay) -> dict[str, int]:
    """Rows that entered, by contributor."""
    found: dict[str, int] = {}
    for entry in journal_of(relay):
        if "rows" in entry:
            found[entry["who"]] = found.get(entry["who"], 0) + entry["rows"]
    return found


@pytest.mark.long
def test_weights_flow_out_and_experience_flows_in(
    new_relay: NewRelay, slurm: SlurmCluster, new_machine: Callable[..., Machine]
) -> None:
    relay = a_training(new_relay, slurm)
    relay.spawn("start")
    shared = relay.run_dir / "shared"
    relay.wait_for(lambda: newest_of(shared) is not None, "a first policy")

    machines = [new_machine(name, shared) for name in ("anna", "ben")]
    daemons = [machine.start("watch", "syncd", "watch") for machine in machines]
    mirrors = [machine.folder for machine in machines]
    wait_for(lambda: all(newest_of(mirror) is not None for mirror in mirrors), "both mirrors")
    follow(shared, mirrors, VERSIONS)

    for machine in machines:
        machine.start(
            "actors", "trainer", "actors", "--shared-dir", str(machine.folder), "--num-envs", "2", "--contribute"
        )
    wait_for(lambda: set(contributed(relay)) == {"anna", "ben"}, "rows of both in the replay")
    wait_for(lambda: any(row.get("contributed") for row in rows_of(relay)), "rows of metrics that count them")
    taken = contributed(relay)
    assert min(taken.values()) >= 100

    assert relay.run("stop").code == 0
    assert_the_checkpoint_holds(relay, taken)
    for machine, daemon in zip(machines, daemons, strict=True):
        assert daemon.poll() is None, machine.said("watch")
        assert machine.server.logins() == 1, "one login for the connection's life"

    stranger = new_machine("mallory", shared, gated=True)
    pulled = stranger.run("syncd", "pull")
    assert pulled.returncode == 0, pulled.stderr
    assert newest_of(stranger.folder) == newest_of(shared)
    assert_it_reaches_nothing_else(stranger, shared)

    before = newest_of(shared)
    relay.spawn("start")
    relay.wait_for(lambda: (newest_of(shared) or before) > before, "the next job's policy")
    wait_for(lambda: all(newest_of(mirror) == newest_of(shared) for mirror in mirrors), "it on both mirrors")
    assert relay.run("stop").code == 0


@pytest.mark.long
def test_one_who_lies_is_found_out_and_the_training_goes_back_to_before(
    new_relay: NewRelay, slurm: SlurmCluster, new_machine: Callable[..., Machine]
) -> None:
    relay = a_training(
        new_relay, slurm, contribution_check_share=1.0, contribution_rollback="auto", keep_checkpoints=1_000
    )
    slot = relay.run_dir / "slots" / "0"
    shared = relay.run_dir / "shared"
    relay.spawn("start")
    relay.wait_for(lambda: list(slot.glob("attempts/*/checkpoints/[0-9]*")), "a checkpoint from before")
    anna, mallory = new_machine("anna", shared), new_machine("mallory", shared, gated=True)
    for machine in (anna, mallory):
        machine.start("watch", "syncd", "watch")
        wait_for(lambda machine=machine: newest_of(machine.folder) is not None, "a mirror")
    words = ("--num-envs", "2", "--contribute")
    anna.start("actors", "trainer", "actors", "--shared-dir", str(anna.folder), *words)
    wait_for(lambda: "anna" in contributed(relay), "honest rows in the replay")
    junk = new_machine("eve", shared, gated=True)
    push_junk(junk, relay.ledger()["run_id"], 2 * LEAST)
    held = store.Inbox.of(store.Shared(shared), "eve").path / "held.json"
    wait_for(held.exists, "the sender of junk to be held")
    assert not [path for path in held.parent.glob("quarantine/**/*") if path.is_file()]

    liar = str(Path(__file__).parents[1] / "support" / "lying_actors.py")
    mallory.start_program("actors", liar, "10", "actors", "--shared-dir", str(mallory.folder), *words)
    inbox = store.Inbox.of(store.Shared(shared), "mallory")
    wait_for((slot / "rollbacks" / "0.json").exists, "the decision to go back")
    assert (inbox.path / "held.json").exists()
    lied = next(entry["step"] for entry in journal_of(relay) if entry.get("who") == "mallory")
    relay.wait_for(lambda: len(list(slot.glob("attempts/*/parent.json"))) > 1, "the job that went back")
    back = json.loads((slot / "rollbacks" / "0.json").read_text())
    parent = json.loads((slot / "attempts" / str(back["attempt"] + 1) / "parent.json").read_text())
    assert (back["without"], parent["step"]) == ("mallory", back["step"])
    assert back["step"] < lied
    relay.wait_for(
        lambda: list((slot / "attempts" / str(back["attempt"] + 1)).glob("checkpoints/[0-9]*")), "a checkpoint of it"
    )
    assert relay.run("stop").code == 0
    journals = [path for path in slot.glob("attempts/*/contributions.jsonl") if int(path.parent.name) > back["attempt"]]
    assert not [path for path in journals if "mallory" in path.read_text()]
    counts = store.given_to(store.Inbox.of(store.Shared(shared), "anna").path, relay.ledger()["run_id"], 0)
    assert counts.checked == counts.exact > 0


def push_junk(machine: Machine, run_id: str, count: int) -> None:
    """`count` segments of four bytes."""
    outbox = Outbox(machine.folder)
    assert all(outbox.offer(run_id, 0, number.to_bytes(4)) for number in range(count))
    pushed = machine.run("syncd", "push")
    assert pushed.returncode in {0, RemoteError.exit_code}, (
        pushed.stderr
    )  # the sender may be held before it has sent all


def assert_the_checkpoint_holds(relay: Relay, taken: dict[str, int]) -> None:
    """The newest checkpoint lists the contributed rows; rows that the one before it counts are gone from the inbox."""
    attempts = relay.run_dir / "slots" / "0" / "attempts"
    published = sorted((int(p.name), p) for p in attempts.glob("*/checkpoints/*") if p.name.isdigit())
    manifest = json.loads((published[-1][1] / "manifest.json").read_text())
    held = sum(sum(segment["counts"]) for segment in manifest["contributed"])
    assert held >= sum(taken.values()) > 0
    inboxes = relay.run_dir / "shared" / "v1" / "inbox"
    kept = {path.name for path in inboxes.glob("*/accepted/**/*") if path.is_file()}
    before = published[-2][0] if len(published) > 1 else 0
    counted = {entry["sha256"] for entry in journal_of(relay) if "rows" in entry and entry["step"] <= before}
    assert not kept & counted, "segments leave the inbox once two checkpoints count them"


REFUSED: dict[str, tuple[str, ...]] = {
    "a shell": ("ssh", "cluster"),
    "a command": ("ssh", "cluster", "cat /etc/passwd"),
    "sftp": ("sftp", "cluster"),
    "a file by rsync": ("rsync", "-rt", "cluster:/etc/hostname", "stolen"),
    "the weights by rsync": ("rsync", "-rt", "cluster:v1/runs/", "stolen"),
    "a write by rsync": ("rsync", "-rtl", "own/", "cluster:v1/inbox/mallory/new/"),
    "a tunnel": ("ssh", "-o", "ExitOnForwardFailure=yes", "-N", "-R", "0:127.0.0.1:1", "cluster"),
}  # fmt: skip


def assert_it_reaches_nothing_else(stranger: Machine, shared: Path) -> None:
    """What a key that `syncd gate` guards is refused; docs/cluster.md says how its line in authorized_keys looks."""
    home, config = stranger.laptop.home, stranger.laptop.config
    (home / "own").mkdir()
    (home / "own" / "file").write_text("x")
    os.symlink("/etc", home / "own" / "link")
    before = sorted(path for path in shared.parent.rglob("*") if path.name in {"file", "link"})
    for what, (program, *words) in REFUSED.items():
        command = [program, "-e", f"ssh -F {config}"] if program == "rsync" else [program, "-F", str(config)]
        done = subprocess.run(
            [*command, *words], cwd=home, env=stranger.env(), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode != 0, f"{what} was allowed: {done.stdout}"
        assert "root:" not in done.stdout, what
    assert not (home / "stolen").exists()
    assert sorted(path for path in shared.parent.rglob("*") if path.name in {"file", "link"}) == before
