"""The loop beside the training, with a described server and a described clock."""

from __future__ import annotations

import threading

import pytest

from trainer.wandb.follow import REFUSALS, Delivery, StuckError, follow
from trainer.wandb.points import START, Cursor, Point
from trainer.wandb.program import pause_s
from trainer.wandb.request import Patience
from trainer.wandb.session import LostError

PATIENCE = Patience(look_s=0.0, check_s=30.0, stuck_s=60.0)


def a_point(step):
    return Point(step, {"train/step": float(step)})


class Server:
    """Has what was sent, unless it `keeps` nothing; does not answer where it `refuses`."""

    def __init__(self):
        self.cursor = START
        self.has = START
        self.keeps = True
        self.refuses = False
        self.asked = 0
        self.sent = []
        self.is_closed = False

    def send(self, lines):
        self.sent += [line.step for line in lines]
        for line in lines:
            self.cursor = self.cursor.after(line)
        if self.keeps:
            self.has = self.cursor

    def arrived(self):
        self.asked += 1
        if self.refuses:
            raise LostError("503: come back later")
        return self.has

    def close(self):
        self.is_closed = True


class Said(list):
    def lost(self, why):
        self.append(f"lost: {why}")

    def back(self):
        self.append("back")


@pytest.fixture
def said():
    return Said()


@pytest.fixture
def delivery(said):
    return Delivery(PATIENCE, said.lost, said.back)


def sending(server, delivery, step, now):
    server.send([a_point(step)])
    delivery.check(server, now)


def test_a_server_is_asked_only_while_something_is_under_way(delivery):
    server = Server()
    delivery.check(server, 0.0)
    server.send([a_point(100)])
    delivery.check(server, 29.0)
    assert server.asked == 0
    delivery.check(server, 30.0)
    assert (server.asked, delivery.arrived) == (1, Cursor(100))
    delivery.check(server, 300.0)
    assert server.asked == 1


def test_one_refusal_is_nothing_and_an_outage_is_said_once_and_so_is_its_end(delivery, said):
    server = Server()
    delivery.check(server, 0.0)
    server.refuses, server.keeps = True, False
    for n in range(1, REFUSALS + 4):
        assert said == ([] if n <= REFUSALS else ["lost: 503: come back later"])
        sending(server, delivery, 100 * n, 30.0 * n)
    server.refuses = False
    delivery.check(server, 1000.0)
    assert said[1:] == []  # it answers, and has nothing yet
    server.has = server.cursor
    delivery.check(server, 1030.0)
    assert said[1:] == ["back"]


def test_a_server_that_answers_and_gets_nothing_new_needs_another_connection(delivery):
    server = Server()
    delivery.check(server, 0.0)
    server.keeps = False
    sending(server, delivery, 100, 30.0)
    delivery.check(server, 60.0)
    with pytest.raises(StuckError):
        delivery.check(server, 90.0)


def test_time_in_which_it_did_not_answer_does_not_count_as_stuck(delivery):
    server = Server()
    delivery.check(server, 0.0)
    server.keeps = False
    sending(server, delivery, 100, 30.0)
    server.refuses = True
    delivery.check(server, 60.0)
    server.refuses = False
    delivery.check(server, 90.0)
    delivery.check(server, 120.0)
    with pytest.raises(StuckError):
        delivery.check(server, 150.0)


class Notes:
    """Journals in which one more row stands at each look."""

    def __init__(self, closing, looks):
        self.looks = looks
        self.closing = closing
        self.step = 0

    def news(self, after):
        self.step += 100
        if self.step >= 100 * self.looks:
            self.closing.set()
        return [a_point(step) for step in range(100, self.step + 1, 100) if step > after.row]


def test_every_row_is_sent_once_and_the_last_one_at_the_end(delivery):
    server, closing = Server(), threading.Event()
    assert follow(server, Notes(closing, 3), delivery, closing, lambda: None, clock=lambda: 0.0) is None
    assert server.sent == [100, 200, 300, 400]
    assert server.is_closed


def test_what_is_told_in_pieces_is_sent_to_the_last_one_at_the_end(delivery, monkeypatch):
    monkeypatch.setattr("trainer.wandb.follow.MOST_LINES", 2, raising=False)

    class Pieces:
        def news(self, after):
            return [a_point(step) for step in range(100, 800, 100) if step > after.row][:2]

    server, closing = Server(), threading.Event()
    closing.set()
    assert follow(server, Pieces(), delivery, closing, lambda: None, clock=lambda: 0.0) is None
    assert server.sent == [100, 200, 300, 400, 500, 600, 700]


def test_a_ghost_sends_nothing_and_does_not_call_its_successors_run_finished(delivery):
    server, closing = Server(), threading.Event()
    newer = iter([None, 7])
    assert follow(server, Notes(closing, 9), delivery, closing, lambda: next(newer), clock=lambda: 0.0) == 7
    assert server.sent == [100]
    assert not server.is_closed


def test_pauses_between_connections_double_up_to_the_longest():
    patience = Patience(retry_s=5.0, longest_retry_s=120.0)
    assert [pause_s(patience, n) for n in (1, 2, 3, 5, 6, 7, 5000)] == [5, 10, 20, 80, 120, 120, 120]
