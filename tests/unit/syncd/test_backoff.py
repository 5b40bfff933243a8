"""When the client tries again, and when it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncd.errors import (
    ConfigError,
    GoneError,
    HostKeyError,
    LoginRefusedError,
    RemoteError,
    StorageError,
    UnreachableError,
)
from syncd.laptop.backoff import MAX_DELAY_S, Backoff, stops


@given(st.integers(0, 5000), st.floats(0, 1, exclude_max=True))
def test_a_delay_is_jittered_over_its_whole_range_and_capped(failures: int, chance: float) -> None:
    backoff = Backoff(failures)
    assert 0 <= backoff.delay_s(chance) <= min(MAX_DELAY_S, 1.6**failures if failures < 100 else MAX_DELAY_S)
    assert backoff.failed().delay_s(chance) >= backoff.delay_s(chance)
    assert backoff.delay_s(0.0) == 0.0


@pytest.mark.parametrize(
    ("error", "was_live", "ends"),
    [
        (UnreachableError("peer.ends-for-now", sentence="no route"), False, False),
        (UnreachableError("peer.ends-for-now", sentence="no route"), True, False),
        (StorageError("incoming.spent", sentence="disk full"), False, False),
        (GoneError("peer.has-no-file", sentence="collected"), False, False),
        (HostKeyError("host.declined"), True, True),
        (LoginRefusedError("login.refused", account="no key"), True, True),
        (ConfigError("remote.none"), False, True),
        (RemoteError("peer.ends", sentence="no syncd over there"), False, True),
        (RemoteError("peer.ends", sentence="no syncd over there"), True, False),
    ],
)
def test_what_a_person_must_mend_is_not_tried_again(error: Exception, was_live: bool, ends: bool) -> None:
    assert stops(error, was_live=was_live) is ends  # type: ignore[arg-type]
