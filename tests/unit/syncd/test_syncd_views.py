"""What people see of a mirror: it fits, it says what is wrong, and a pipe gets words instead of columns."""

from __future__ import annotations

import pytest
from policies import RUN
from rich.console import Console

from syncd.laptop import views
from syncd.laptop.exchange import ExchangeCounts
from syncd.laptop.status import BUCKETS_S, ClientStatus, Latency, MirrorView, PolicyView
from syncd.outbox import Contributions
from syncd.played import Played

NOW = 1_790_000_000.0


def a_word(**more: object) -> ClientStatus:
    fields: dict[str, object] = {
        "pid": 77, "started_at": NOW - 4000, "written_at": NOW - 1, "state": "live", "since": NOW - 3700,
        "remote": "anna@hpc.example.edu:/scratch/group/runs/mt50/shared", "transport": "openssh", "rtt_s": 0.038,
        "contributor": "anna", "bytes_in": 152_000_000, "bytes_out": 1_400_000, "logins": 2, "policies": 1200,
    }  # fmt: skip
    return ClientStatus.model_validate(fields | more)


def a_slot(**more: object) -> PolicyView:
    fields: dict[str, object] = {
        "run_id": "meta-world-mt50-with-a-long-name-0123abcd", "run_name": "long", "slot": 12, "version": "14-12345",
        "step": 100_000_000, "created_at": NOW - 86_000, "bytes": 354_000,
        "score": {"step": 1, "mean_success": 0.8312, "goals_per_task": 50},
    }  # fmt: skip
    return PolicyView.model_validate(fields | more)


def a_view(**more: object) -> MirrorView:
    fields: dict[str, object] = {
        "folder": "/home/anna/shared_weights", "looked_at": NOW, "runs": True, "pid": 77, "verb": "watch",
        "client": a_word(), "slots": (a_slot(),), "waiting": 12, "waiting_bytes": 540_000,
        "contributions": Contributions(sent=1000, accepted=950, refused={"stale": 20, "duplicate": 1}),
    }  # fmt: skip
    return MirrorView.model_validate(fields | more)


def drawn(view: MirrorView, width: int) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    console.print(views.status_table(view, width))
    return console.export_text()


@pytest.mark.parametrize("width", [80, 120])
def test_a_full_picture_fits_and_cuts_no_number(width: int) -> None:
    latency = Latency()
    for k in range(50):
        latency = latency.with_one(0.05 * k)
    text = drawn(a_view(client=a_word(latency=latency, troubles=("the disk is full",))), width)
    assert max(map(len, text.splitlines())) <= width
    for number in ("14-12345", "100,000,000", "83.1 %", "23 h", "sums", "meta-world", "0123abcd"):
        assert number in text
    for words in ("38 ms away", "1,000 sent", "950 accepted", "21 refused", "stale 20", "note: the disk is full"):
        assert words in " ".join(text.split())
    assert ("≤0.25 s" in text) is (width == 120)


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (a_view(runs=False), "no syncd runs for /home/anna/shared_weights (the last one ended 1 s ago); start one"),
        (a_view(runs=False, client=None), "no syncd runs for /home/anna/shared_weights; start one with `syncd watch`"),
        (a_view(client=a_word(pid=5)), "syncd (pid 77) runs for /home/anna/shared_weights, and has not said anything"),
        (a_view(client=a_word(written_at=NOW - 600)), "syncd (pid 77) has said nothing for 10 min"),
        (
            a_view(client=a_word(state="offline", since=NOW - 190, error="no way to hpc now", next_try_at=NOW + 12)),
            "offline for 3 min; trying again in 12 s: no way to hpc now",
        ),
        (a_view(client=a_word(state="connecting", since=NOW - 3)), "connecting to anna@hpc.example.edu:"),
        (a_view(client=a_word(state="syncing", unfetched=3)), "by openssh, 3 files to fetch"),
        (a_view(verb="pull", client=a_word(pid=5)), "`syncd pull` (pid 77) is at work on /home/anna/shared_weights"),
        (a_view(verb="pull"), "live: anna@hpc.example.edu:"),  # one that goes on for ever has its say
    ],
)
def test_the_first_line_says_how_it_stands(view: MirrorView, words: str) -> None:
    assert words in views.headline(view)
    assert words in views.status_lines(view)[0]


def test_the_way_is_said_with_its_reason() -> None:
    word = a_word(transport="paramiko", chosen_because="there is no ssh here")
    text = " ".join(drawn(a_view(client=word), 80).split())
    assert "way: paramiko, because there is no ssh here" in text


@pytest.mark.parametrize(
    ("why", "words"),
    [("", "by the disk, at once"), ("a file system of type nfs4", "again and again (a file system of type nfs4)")],
)
def test_how_the_other_side_comes_to_know_of_news_is_said(why: str, words: str) -> None:
    assert words in " ".join(drawn(a_view(client=a_word(polls_because=why)), 80).split())
    assert "news:" not in drawn(a_view(), 80)


def test_what_an_actor_found_is_shown() -> None:
    good = a_slot(run_id=RUN, played=Played(version="14-12345", ok=True, at=NOW))
    bad = a_slot(played=Played(version="14-12345", ok=False, error="its actions differ by 0.3", at=NOW))
    text = drawn(a_view(slots=(good, bad)), 80)
    assert "actions too" in text
    assert "actions differ" in text
    assert any(
        "is not used here: its actions differ by 0.3" in line for line in views.status_lines(a_view(slots=(bad,)))
    )


@pytest.mark.parametrize(
    ("refused", "waiting", "words"),
    [
        ({}, 0, "nothing to send"),
        ({}, 3, "0 segments sent; 3 segments still waiting"),
        ({"other_run": 5}, 0, "0 segments sent"),
    ],
)
def test_what_was_refused_is_not_called_nothing_to_send(refused: dict[str, int], waiting: int, words: str) -> None:
    counts = ExchangeCounts(refused=refused)
    lines = views.moved_lines(counts, pull=False, push=True, waiting=waiting, remote="here")
    assert lines[0] == words


def test_latencies_fall_into_their_buckets() -> None:
    latency = Latency()
    for value in (-0.5, 0.1, 0.11, 3.0, 1000.0):
        latency = latency.with_one(value)
    assert latency.buckets == (2, 1, 0, 0, 0, 1, 0, 0, 1)
    assert (latency.quantile(0.5), latency.quantile(0.95)) == (0.11, 1000.0)
    assert len(latency.buckets) == len(BUCKETS_S) + 1
    assert Latency().quantile(0.5) is None
