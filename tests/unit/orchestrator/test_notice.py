"""Notices of AWS and Google that a machine is taken away, from a stand-in for their metadata services."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from daemons import PATIENCE_S, wait_for
from metadata_service import NOTICE, MetadataService, metadata_service
from refused import refused

from orchestrator.config import check_start, parse_config
from orchestrator.executors import notice
from orchestrator.executors.notice import Cloud, Metadata, Notice, NoticeWatch, _UnusableError

ACTION = "GET /latest/meta-data/spot/instance-action"
REBALANCE = "GET /latest/meta-data/events/recommendations/rebalance"
PREEMPTED = "GET /computeMetadata/v1/instance/preempted"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in is a thread of this process: it may wait for its turn longer than a cloud's service may take."""
    monkeypatch.setattr(notice, "TIMEOUT_S", PATIENCE_S)


@pytest.fixture
def service() -> Iterator[MetadataService]:
    with metadata_service() as one:
        yield one


class TestOneQuestion:
    @pytest.mark.parametrize("cloud", ["aws", "gcp"])
    def test_most_of_the_time_there_is_no_notice(self, service: MetadataService, cloud: Cloud) -> None:
        assert Metadata(cloud, service.environ).ask() is None

    def test_aws_says_what_and_when(self, service: MetadataService) -> None:
        service.take_away("aws")
        said = Metadata("aws", service.environ).ask()
        assert said == Notice("AWS takes this machine away (terminate at 2026-11-24T08:22:00Z)")
        assert service.asked == ["PUT /latest/api/token", ACTION]

    def test_google_says_true(self, service: MetadataService) -> None:
        service.take_away("gcp")
        assert Metadata("gcp", service.environ).ask() == Notice("Google Cloud takes this machine away within 30 s")

    def test_a_rebalance_recommendation_is_told_and_not_certain(self, service: MetadataService) -> None:
        service.answers[REBALANCE] = (200, '{"noticeTime": "2026-11-24T08:22:00Z"}')
        said = Metadata("aws", service.environ).ask()
        assert said is not None
        assert not said.final

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
        self, service: MetadataService, cloud: Cloud, place: str, status: int, body: str
    ) -> None:
        service.answers[place] = (status, body)
        with pytest.raises(_UnusableError):
            Metadata(cloud, service.environ).ask()

    def test_somebody_who_does_not_say_that_he_is_google_is_not(self, service: MetadataService) -> None:
        service.take_away("gcp")
        service.says_google = False
        with pytest.raises(_UnusableError):
            Metadata("gcp", service.environ).ask()

    @pytest.mark.parametrize("address", ["ftp://127.0.0.1", "127.0.0.1", "http://127.0.0.1:x", "http://", "http://[::"])
    def test_an_address_that_is_none_is_no_traceback(self, address: str) -> None:
        with pytest.raises(_UnusableError):
            Metadata("aws", {"AWS_EC2_METADATA_SERVICE_ENDPOINT": address}).ask()

    def test_words_of_the_service_are_made_harmless(self, service: MetadataService) -> None:
        service.answers[ACTION] = (200, '{"action": "stop", "time": "\\u001b[31m' + "9" * 300 + '"}')
        said = Metadata("aws", service.environ).ask()
        assert said is not None
        assert said.words.isprintable()
        assert len(said.words) < 120

    def test_who_takes_the_connection_and_says_nothing_is_given_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(notice, "TIMEOUT_S", 0.05)
        with socket.create_server(("127.0.0.1", 0)) as mute:
            where = f"127.0.0.1:{mute.getsockname()[1]}"
            with pytest.raises(_UnusableError, match="does not answer"):
                Metadata("gcp", {"GCE_METADATA_HOST": where}).ask()


class Watched:
    """A watch with what it passed on and said."""

    def __init__(self, service: MetadataService, *clouds: Cloud, failures: int = 0) -> None:
        self.passed_on: list[Notice] = []
        self.said: list[str] = []
        self.failures = failures
        self.watch = NoticeWatch(clouds, service.environ, self.take, self.said.append, look_s=0.01)

    def take(self, one: Notice) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(28, "No space left on device")
        self.passed_on.append(one)


class TestWatching:
    def test_a_notice_that_is_there_already_comes_before_begin_returns(self, service: MetadataService) -> None:
        service.take_away("gcp")
        watched = Watched(service, "gcp")
        watched.watch.begin()
        assert len(watched.passed_on) == 1
        watched.watch.end()

    def test_a_notice_is_passed_on_once_and_the_asking_ends(self, service: MetadataService) -> None:
        watched = Watched(service, "aws")
        watched.watch.begin()
        assert watched.passed_on == []
        service.take_away("aws")
        wait_for(lambda: watched.passed_on, "the notice")
        wait_for(lambda: not any(one.name == "preemption-notice" for one in threading.enumerate()), "the end")
        assert len(watched.passed_on) == 1
        watched.watch.end()

    @pytest.mark.parametrize("cloud", ["aws", "gcp"])
    def test_auto_finds_whoever_answers(self, service: MetadataService, cloud: Cloud) -> None:
        service.is_only(cloud)
        watched = Watched(service, "aws", "gcp")
        watched.watch.begin()
        service.take_away(cloud)
        wait_for(lambda: watched.passed_on, "the notice")
        watched.watch.end()
        assert watched.said == []

    def test_where_nobody_answers_that_is_said_once_and_asked_again(self, service: MetadataService) -> None:
        service.answers = {}
        watched = Watched(service, "aws", "gcp")
        watched.watch.begin()
        wait_for(lambda: len(service.asked) > 6, "more questions")
        there = MetadataService()
        there.is_only("aws")
        there.take_away("aws")
        service.answers = there.answers  # at once: whoever answers first is asked from then on
        wait_for(lambda: watched.passed_on, "the notice")
        watched.watch.end()
        (trouble,) = watched.said
        assert trouble.startswith("no preemption notice can be seen: AWS's metadata service: it gave no token")
        assert "Google Cloud's metadata service: it answered with status 404" in trouble

    def test_a_rebalance_recommendation_is_said_once_and_changes_nothing(self, service: MetadataService) -> None:
        service.answers[REBALANCE] = (200, "{}")
        watched = Watched(service, "aws")
        watched.watch.begin()
        wait_for(lambda: len(service.asked) > 9, "more questions")
        watched.watch.end()
        assert watched.passed_on == []
        (said,) = watched.said
        assert said.endswith("nothing is done for that")

    def test_a_full_disk_has_the_notice_passed_on_again(self, service: MetadataService) -> None:
        service.take_away("aws")
        watched = Watched(service, "aws", failures=2)
        watched.watch.begin()
        wait_for(lambda: watched.passed_on, "the notice")
        watched.watch.end()
        (said,) = watched.said
        assert "could not be told of it (No space left on device)" in said

    def test_a_service_that_answers_a_byte_at_a_time_does_not_keep_the_start(
        self, service: MetadataService, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        go_on = threading.Event()
        monkeypatch.setattr(notice.Metadata, "ask", lambda _self: go_on.wait(PATIENCE_S) and None)
        monkeypatch.setattr(notice, "TIMEOUT_S", 0.01)
        watched = Watched(service, "aws")
        watched.watch.begin()
        go_on.set()
        watched.watch.end()


def test_notices_are_for_jobs_on_this_machine() -> None:
    config = parse_config({"relay": {"preemption_notice": "auto"}}, "c.json")
    check_start(config, "local")
    with refused("config.notice-on-slurm", notice="auto"):
        check_start(config, "slurm")
