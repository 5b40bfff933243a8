"""A class: three accounts on one cluster. One trains, two let jobs of their own quota play for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from accounts import Account, missing_account_parts, throw_away_accounts
from daemons import wait_for
from needs import need
from slurm_cluster import PrivateSlurm, SlurmCluster

from syncd import store

pytestmark = [pytest.mark.slurm, pytest.mark.trainer, pytest.mark.long]

TRAINING = {
    "preset": "tiny",
    "tasks": ["reach-v3"],
    "total_steps": 10_000_000,
    "num_envs": 2,
    "num_workers": 0,
    "updates_per_step": 0.2,
    "random_steps": 200,
    "publish_interval": 50,
    "checkpoint_interval": 2_000,
    "evaluation_goals": 0,
}
JOB = {"time_limit": "30", "mem": "2G", "cpus_per_task": 1, "gpus": 0}
KEPT_ALIVE = {"executor": "slurm", "lead_seconds": 20, "poll_seconds": 0.5, "slurm": JOB}


@pytest.fixture
def cluster(private_slurm: PrivateSlurm) -> SlurmCluster:
    """A cluster that every account of this machine may use."""
    need("accounts of a test's own", missing_account_parts())
    found = private_slurm(nodes=3, cpus=2, gpus=0)
    found.folder.chmod(0o755)
    return found


@pytest.fixture
def accounts(cluster: SlurmCluster) -> Iterator[Callable[..., tuple[str, list[Account]]]]:
    with ExitStack() as stack:

        def make(*names: str) -> tuple[str, list[Account]]:
            made = stack.enter_context(throw_away_accounts(*names, env=cluster.env()))
            stack.callback(cluster.clear)  # before the accounts go
            return made

        yield make


class Friend:
    """One account's actors, and what its files say of them."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.inbox = f"user-{account.name}"
        self.slot = account.home / "runs" / "helping" / "slots" / "0"

    def attempts(self) -> list[int]:
        return sorted(int(path.name) for path in (self.slot / "attempts").glob("*") if (path / "claim").exists())

    def ended(self, attempt: int) -> dict[str, Any]:
        path = self.slot / "attempts" / str(attempt) / "exit.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def hand_over(self) -> int:
        """Ask the running job to hand over, and wait for its end. Returns its attempt."""
        attempt = self.attempts()[-1]
        token = json.loads((self.slot / "attempts" / str(attempt) / "claim").read_text())["token"]
        (self.account.home / "runs" / "helping" / "jobs" / token / "hand-over").touch()
        wait_for(lambda: self.ended(attempt), "the actors to hand over")
        return attempt

    def log(self) -> str:
        logs = sorted((self.account.home / "runs" / "helping" / "jobs").glob("*/job-*.*"))
        return "\n".join(path.read_text(errors="replace") for path in logs) + self.account.said()


def given(shared: Path, who: str) -> int:
    """Transitions of `who` that the learner accepted."""
    found = store.Shared(shared)
    places = found.slots()
    return sum(store.given_to(store.Inbox.of(found, who).path, place.run_id, place.slot).rows for place in places)


def wait_for_more(shared: Path, friend: Friend) -> None:
    """Wait until more of theirs was accepted than now."""
    before = given(shared, friend.inbox)
    try:
        wait_for(lambda: given(shared, friend.inbox) > before, f"experience of {friend.account.name}")
    except TimeoutError as error:
        raise TimeoutError(f"{error}; its jobs said:\n{friend.log()}") from None


def writable(shared: Path, account: Account) -> set[str]:
    """What below the shared folder `account` may write to, without what is its own."""
    done = account.run("find", str(shared), "-writable", "!", "-type", "l", "!", "-user", account.name)
    return {str(Path(line).relative_to(shared)) for line in done.stdout.splitlines()}


def test_two_friends_play_for_a_training_with_their_own_jobs_and_can_harm_nothing(
    accounts: Callable[..., tuple[str, list[Account]]],
) -> None:
    group, (owner, *others) = accounts("ann", "ben", "eve")
    shared = owner.home / "shared"
    # The group reads the shared folder, and it is nobody's business what else is in the owner's home.
    owner.start(
        run_name="mine", training=TRAINING, **KEPT_ALIVE,
        collaboration={"enabled": True, "group": group, "shared_dir": str(shared)},
    )  # fmt: skip
    incoming = shared / "v1" / "incoming"
    wait_for(lambda: list(incoming.glob("*/0")) or owner.children[0].poll() is not None, "the training to be open")
    assert owner.children[0].poll() is None, owner.said()
    friends = [Friend(account) for account in others]
    for friend in friends:
        friend.account.start(
            run_name="helping", role="actors", actors={"shared_dir": str(shared), "num_envs": 1}, **KEPT_ALIVE
        )
    for friend in friends:
        wait_for_more(shared, friend)

    ben, eve = friends
    for _ in range(2):
        attempt = ben.hand_over()
        assert ben.ended(attempt)["code"] == 75
        wait_for(lambda last=attempt: ben.attempts()[-1] > last, "the next job")  # type: ignore[misc]
        wait_for_more(shared, ben)
    status = json.loads(ben.account.orchestrator("status", "--json").stdout)["slots"][0]
    assert (status["hand_overs"], status["failures"], status["state"]) == (2, 0, "running")

    told = json.loads(owner.orchestrator("status", "--json").stdout)["slots"][0]["progress"]["contributors"]
    assert {who for who, what in told.items() if what["transitions"] > 0} == {ben.inbox, eve.inbox}
    lines = owner.orchestrator("status").stdout
    assert "others gave: " in lines
    assert f"{eve.inbox} " in lines

    slot = str(next(incoming.glob("*/0")).relative_to(shared))
    assert {frozenset(writable(shared, friend.account)) for friend in friends} == {frozenset({slot})}
    theirs = shared / slot / "by-eve"
    eve.account.run("touch", str(theirs))
    assert theirs.owner() == eve.account.name
    assert ben.account.run("rm", "-f", str(theirs)).returncode != 0
    assert ben.account.run("mv", str(theirs), str(theirs) + "2").returncode != 0

    for account in (ben.account, eve.account, owner):
        assert account.orchestrator("stop").returncode == 0
