"""The template language of the job script and of a config's `command`: `@{name}`, and nothing else.

So bash keeps `$`, `"$@"`, `%j` and `user@host` (`string.Template` and Jinja both break on one of these).
"""

from __future__ import annotations

import re
from collections.abc import Callable

_PLACEHOLDER = re.compile(r"@\{([^{}]*)\}")


def names_in(text: str) -> set[str]:
    """The names that `text` has places for."""
    return set(_PLACEHOLDER.findall(text))


def filled(text: str, value_of: Callable[[str], str]) -> str:
    """`text` with `value_of(name)` in each place. Errors: those of `value_of`."""
    return _PLACEHOLDER.sub(lambda match: value_of(match[1]), text)
