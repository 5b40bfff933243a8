"""What is sent after the first picture makes the next one of it."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from viewer.server.watchers import changes

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("abc", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcd", max_size=1), inner, max_size=4),
    max_leaves=12,
)


def applied(old: Any, differences: list[list[Any]]) -> Any:
    """`old` after `differences`, as a browser has it (`static/main.js`); `old` itself stays as it is."""
    for path, *value in differences:
        old = _put(old, path, value)
    return old


def _put(old: Any, path: list[str], value: list[Any]) -> Any:
    if not path:
        return value[0]
    first, *rest = path
    changed = dict(old)
    if rest:
        changed[first] = _put(old[first], rest, value)
    elif value:
        changed[first] = value[0]
    else:
        del changed[first]
    return changed


@given(VALUES, VALUES)
def test_differences_make_the_new_of_the_old(old: object, new: object) -> None:
    assert repr(applied(old, changes(old, new))) == repr(new) or applied(old, changes(old, new)) == new
