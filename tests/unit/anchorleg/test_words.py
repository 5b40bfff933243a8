"""Numbers, times and slips of the pen."""

from __future__ import annotations

import pytest

from anchorleg.words import did_you_mean, duration, roughly, sized


def test_the_nearest_known_name_is_offered_else_all_else_what_to_do() -> None:
    assert did_you_mean("tinny", ["tiny", "debug"]) == 'did you mean "tiny"?'
    assert did_you_mean("zzz", ["tiny", "debug"]) == "known here: debug, tiny"
    assert did_you_mean("zzz", ["tiny"], "see the page") == "see the page"
    assert did_you_mean("zzz", []) == "known here: none"


@pytest.mark.parametrize(
    ("seconds", "exactly", "about"),
    [
        (-3, "0 s", "0 s"),
        (59.4, "59 s", "59 s"),
        (61, "1 min 01 s", "61 s"),
        (120, "2 min 00 s", "2 min"),
        (3_599.6, "1 h 00 min", "59 min"),
        (7_265, "2 h 01 min", "2 h"),
        (100_000, "1 d 03 h", "27 h"),
        (172_800, "2 d 00 h", "2 d"),
    ],
)
def test_times_are_as_exact_as_they_need_to_be(seconds: float, exactly: str, about: str) -> None:
    assert (duration(seconds), roughly(seconds)) == (exactly, about)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (0, "0 B"),
        (812, "812 B"),
        (1024, "1 KiB"),
        (1.44 * 2**20, "1.4 MiB"),
        (40 * 2**30, "40 GiB"),
        (1000 * 2**30, "1,000 GiB"),
        (3e16, "27,285 TiB"),
    ],
)
def test_bytes_are_counted_as_memory_and_disks_are(count: float, words: str) -> None:
    assert sized(count) == words
