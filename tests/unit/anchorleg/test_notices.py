"""What a thread leaves for its owner to say."""

from __future__ import annotations

from anchorleg.output import Notices


def told(notices: Notices) -> list[str]:
    said: list[str] = []
    notices.tell(said.append)
    return said


def test_sentences_come_out_once_and_in_order():
    notices = Notices()
    notices.note("a", "b")
    notices.note("a")
    assert told(notices) == ["a", "b", "a"]
    assert told(notices) == []


def test_a_trouble_is_said_once_for_as_long_as_it_lasts():
    notices = Notices()
    for _ in range(2):
        notices.trouble("no disk")
        notices.trouble("no line", cause="net")
        notices.trouble("still no line", cause="net")
    assert told(notices) == ["no disk", "no line"]
    notices.over("all is well")
    notices.over("all is well")
    notices.trouble("no disk")
    assert told(notices) == ["all is well", "no disk"]
