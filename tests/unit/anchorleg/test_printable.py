"""Foreign text: every character of it is shown, and none is obeyed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anchorleg.words import printable

ANYTHING = st.text(st.characters(exclude_categories=()), max_size=60)


@given(ANYTHING, st.integers(1, 50))
def test_whatever_it_is_it_is_shown_and_fits(text: str, most: int) -> None:
    found = printable(text, most)
    assert found.isprintable()
    assert len(found) <= most
    assert printable(found, most) == found


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b2J", r"\x9b2J"),  # the same in one character, for terminals that read 8 bits
        ("two\r\nlines\tand\u2028more", "two  lines and more"),
        ("a\u202egnp.exe", r"a\u202egnp.exe"),
        ("\ud800", r"\ud800"),
        ("Größe, 三, 🙂", "Größe, 三, 🙂"),
        ("C:\\path", "C:\\path"),
    ],
)
def test_what_a_terminal_would_obey_is_written_out(text: str, shown: str) -> None:
    assert printable(text) == shown
