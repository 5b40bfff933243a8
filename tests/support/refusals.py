"""What a test expects to be refused: the identifier of an error and its fields, whatever its sentence says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from anchorleg.errors import NamedError


@contextmanager
def refused(name: str, **fields: object) -> Iterator[pytest.ExceptionInfo[NamedError]]:
    """The block raises the error `name`; of its fields these have these values."""
    with pytest.raises(NamedError) as caught:
        yield caught
    assert caught.value.id == name, str(caught.value)
    assert {field: caught.value.fields.get(field) for field in fields} == fields
