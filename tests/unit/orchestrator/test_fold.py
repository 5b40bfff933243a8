"""What a look makes of a run's slots: a table of ledgers before and after."""

from __future__ import annotations

from slot_text import Case, cases_of, check


@cases_of("fold.txt")
def test_what_a_look_makes_of_the_slots(case: Case) -> None:
    check(case)
