from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from orchestrator.notation import format_duration, parse_duration_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("240", 240 * 60),
        ("90:30", 90 * 60 + 30),
        ("4:00:00", 4 * 3600),
        ("1-12", 36 * 3600),
        ("1-12:30", 36 * 3600 + 30 * 60),
        ("2-03:04:05", ((2 * 24 + 3) * 60 + 4) * 60 + 5),
        (" 0:01:00 ", 60),
        ("0", 0),
    ],
)
def test_every_form_of_the_manual_page_is_read(text: str, seconds: int) -> None:
    assert parse_duration_s(text) == seconds


@pytest.mark.parametrize("text", ["", "4h", "1:2:3:4", "-5", "1-", "1.5", "1:00\nrm", "1-2-3", "::", "four"])
def test_anything_else_is_refused_with_the_forms_that_work(text: str) -> None:
    with refused("config.time-limit", text=text.strip()):
        parse_duration_s(text)


@given(st.integers(min_value=0, max_value=400 * 86400))
def test_what_is_written_is_read_back(seconds: int) -> None:
    assert parse_duration_s(format_duration(seconds)) == seconds
