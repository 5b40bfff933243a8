"""`with refused("config.no-file", path=path):` in place of `pytest.raises`: the identifier, and some of the fields."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pydantic import ValidationError

from anchorleg.errors import NamedError


@contextmanager
def refused(name: str, /, **fields: Any) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """The block must raise the error `name` of a catalogue, which has `fields`, compared as text, or found in it where
    they are patterns; pydantic may have wrapped it.
    """
    with pytest.raises((NamedError, ValidationError)) as caught:
        yield caught
    error = named(caught.value)
    assert error.id == name, f"{error.id}: {error}"
    for key, wanted in fields.items():
        found = str(error.fields.get(key))
        assert wanted.search(found) if isinstance(wanted, re.Pattern) else found == str(wanted), f"{key} is {found}"


def named(error: Exception) -> NamedError:
    """`error`, or the first that is in it where it is pydantic's."""
    if isinstance(error, ValidationError):
        return next(problem["ctx"]["error"] for problem in error.errors() if "error" in problem.get("ctx", {}))
    assert isinstance(error, NamedError), error
    return error
