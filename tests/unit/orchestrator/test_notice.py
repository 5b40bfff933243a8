"""Notices of AWS and Google that a machine is taken away, from a stand-in for their metadata services."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from daemons import PATIENCE_S, wait_for
from metadata_service import NOTICE, MetadataService, metadata_service
from one_run import World
from refused import refused

from orchestrator.config import RunConfig, check_start, parse_config
from orchestrator.decisions.models import Ledger
from orchestrator.hosts import notice
from orchestrator.hosts.host import report_leaving
from orchestrator.hosts.notice import Cloud, UnusableError, clouds_asked, notice_of, notices_heeded
from orchestrator.run.ledger import read_control, write_control

ACTION = "GET /latest/meta-data/spot/instance-action"
PREEMPTED = "GET /computeMetadata/v1/instance/preempted"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in is a thread of this process: it may wait for its turn longer than a cloud's service may take."""
    monkeypatch.setattr(notice, "TIMEOUT_S", PATIENCE_S)


@pytest.fixture
def service() -> Iterator[MetadataService]:
    with metadata_service() as one:
        yield one


@pytest.mark.parametrize(
    ("cloud", "place", "status", "body"),
    [
        ("aws", "PUT /latest/api/token", 403, ""),
        ("aws", "PUT /latest/api/token", 200, "tok\x1b[2Jen"),
        ("aws", ACTION, 500, NOTICE),
        ("aws", ACTION, 200, "<html>welcome to the hotel</html>"),
        ("aws", ACTION, 200, "[" * 2000),
        ("aws", ACTION, 200, '{"action": "rm -rf"}'),
        ("aws", ACTION, 200, NOTICE + " " * 5000),
        ("gcp", PREEMPTED, 200, "MAYBE"),
        ("gcp", PREEMPTED, 404, "TRUE"),
    ],
)
def test_what_is_not_documented_is_no_notice(
    service: MetadataService, cloud: Cloud, place: str, status: int, body: str
) -> None:
    service.answers[place] = (status, body)
    with pytest.raises(UnusableError):
        notice_of(cloud, service.environ)


def test_somebody_who_does_not_say_that_he_is_google_is_not(service: MetadataService) -> None:
    service.take_away("gcp")
    service.says_google = False
    with pytest.raises(UnusableError):
        notice_of("gcp", service.environ)


@pytest.mark.parametrize("address", ["ftp://127.0.0.1", "127.0.0.1", "http://127.0.0.1:x", "http://", "http://[::"])
def test_an_address_that_is_none_is_no_traceback(address: str) -> None:
    with pytest.raises(UnusableError):
        notice_of("aws", {"AWS_EC2_METADATA_SERVICE_ENDPOINT": address})


class Watched:
    """A watch with what it passed on and said."""

    def __init__(self, service: MetadataService, *clouds: Cloud, failures: int = 0) -> None:
        self.passed_on: list[str] = []
        self.said: list[str] = []
        self.failures = failures
        self.watch = clouds_asked(clouds, service.environ, self.take, self.said.append, look_s=0.01)

    def take(self, one: str) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(28, "No space left on device")
        self.passed_on.append(one)


def test_a_full_disk_has_the_notice_passed_on_again_and_once(service: MetadataService) -> None:
    service.take_away("aws")
    watched = Watched(service, "aws", failures=2)
    with watched.watch:
        wait_for(lambda: not any(one.name == "preemption-notice" for one in threading.enumerate()), "the end")
    assert (len(watched.passed_on), len(watched.said)) == (1, 1)


def test_where_nobody_answers_that_is_said_once_and_asked_again(service: MetadataService) -> None:
    service.answers = {}
    watched = Watched(service, "aws", "gcp")
    with watched.watch:
        wait_for(lambda: len(service.asked) > 6, "more questions")
        there = MetadataService()
        there.is_only("aws")
        there.take_away("aws")
        service.answers = there.answers
        wait_for(lambda: watched.passed_on, "the notice")
    assert len(watched.said) == 1


@pytest.mark.parametrize("before", ["run", "stop"])
def test_a_notice_wishes_the_end_where_nobody_did_before(
    tmp_path: Path, service: MetadataService, monkeypatch: pytest.MonkeyPatch, before: Any
) -> None:
    world = World(tmp_path, relay={"preemption_notice": "aws"})
    write_control(world.run_dir, before, now=world.time, by="somebody")
    for name, value in service.environ.items():
        monkeypatch.setenv(name, value)
    service.take_away("aws")
    with notices_heeded(world.run, world.run_dir, world.said.append):  # waits for the first answer
        found = read_control(world.run_dir)
    assert (found.wish, found.by) == ("stop", "somebody" if before == "stop" else notice.PREEMPTED)


@pytest.mark.parametrize(
    ("statuses", "goes_on"),
    [
        (["finished"], False),
        (["dropped"], False),
        (["behind"], False),
        (["active"], True),
        (["failed"], True),
        (["finished", "active"], False),  # of an older config with two slots
    ],
)
def test_only_what_is_not_finished_is_handed_over(statuses: list[str], goes_on: bool) -> None:
    slots = [{"index": index, "status": status} for index, status in enumerate(statuses)]
    ledger = Ledger.model_validate({"run_id": "toy-0123abcd", "epoch": 0, "slots": slots})
    with refused("machine.taken") if goes_on else nullcontext():
        report_leaving(ledger, RunConfig())


def test_notices_are_for_jobs_on_this_machine() -> None:
    config = parse_config({"relay": {"preemption_notice": "auto"}}, "c.json")
    check_start(config, "local")
    with refused("config.notice-on-slurm", notice="auto"):
        check_start(config, "slurm")
