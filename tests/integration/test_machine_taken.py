"""A rented machine is taken away, with a notice or without one: the same command goes on, on the next one."""

from __future__ import annotations

import json

import pytest
from daemons import sweep
from metadata_service import MetadataService, metadata_service
from relay import NewRelay, Relay

#: What a machine that is gone leaves behind of itself.
GONE = {"host": "rented-1", "boot_id": "its own"}


def rented(new_relay: NewRelay, service: MetadataService, watched: str, **config: object) -> Relay:
    relay = new_relay(relay={"retry_delays_seconds": [0], "preemption_notice": watched}, **config)
    relay.env |= service.environ
    return relay


@pytest.mark.long
@pytest.mark.parametrize(("watched", "cloud"), [("aws", "aws"), ("gcp", "gcp"), ("auto", "gcp")])
def test_a_notice_has_every_job_save_and_the_same_command_goes_on(
    new_relay: NewRelay, watched: str, cloud: str
) -> None:
    with metadata_service() as service:
        service.is_only(cloud)
        relay = rented(new_relay, service, watched, total=30, slots=2, held_at=10)
        first = relay.spawn("start")
        for slot in (0, 1):
            relay.wait_for_step(10, slot)

        service.take_away(cloud)

        assert relay.ended(first) == 75
        assert "takes this machine away" in relay.output()
        assert "[machine.taken]" in relay.output()
        for slot in (0, 1):
            ended = relay.read("exit.json", 0, slot)
            assert (ended["code"], ended["asked"]) == (75, "asked to")
        assert relay.status()["state"] == "stopped"

        again = relay.spawn("start")  # as a restart on the dying machine: nothing begins there
        assert relay.ended(again) == 75
        assert [relay.attempts(slot) for slot in (0, 1)] == [[0], [0]]

    with metadata_service() as service:  # the next machine's
        relay.env |= service.environ
        relay.release()
        third = relay.spawn("start")
        assert relay.ended(third) == 0
    for slot in (0, 1):
        relay.assert_exactly_once(30, slot)


class TestAMachineThatVanished:
    """The controller, its jobs and their supervisors are gone without a word; the folder was on a volume."""

    #: `start` that takes silence for what it is after a second, and not after two to three minutes.
    HURRIED = """
from orchestrator import cli
from orchestrator.decisions import sightings
from orchestrator.executors import local
from orchestrator.run import lease
lease.TTL_S = local.FORGET_AFTER_S = sightings.HEARTBEAT_SILENT_S = 1.0
cli.main()
"""

    def vanished(self, new_relay: NewRelay) -> Relay:
        relay = new_relay(command=["python3", "./count.py", "250", "deaf"], pace_s=0.003, held_at=130)
        relay.spawn("start")
        relay.wait_for_step(130)
        sweep("TMPDIR", relay.env["TMPDIR"])
        for path in [*relay.run_dir.glob("jobs/*/local.json"), *relay.run_dir.glob("lease/0")]:
            record = json.loads(path.read_text())
            record["supervisor" if path.name == "local.json" else "process"] |= GONE
            path.write_text(json.dumps(record))
        (relay.folder / "hurried.py").write_text(self.HURRIED)
        return relay

    @pytest.mark.long
    def test_the_next_machine_takes_the_run_over_by_itself(self, new_relay: NewRelay) -> None:
        relay = self.vanished(new_relay)
        relay.release()

        successor = relay.spawn("start", driver=(str(relay.folder / "hurried.py"),))

        assert relay.ended(successor) == 0, relay.output()
        assert "on rented-1 (orchestrator start" in relay.output()
        assert "this start takes over in" in relay.output()
        assert relay.attempts() == [0, 1]
        assert relay.read("parent.json", 1)["step"] == 100
        assert [event["verdict"] for event in relay.events("ended")] == ["node failed", "finished"]
        assert [n for attempt, n in relay.journal(0) if attempt == 1] == list(range(101, 251))
