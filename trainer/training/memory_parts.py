"""What takes memory in a training, and what makes it less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.config.training import SECTIONS

_GB = 1e9


@dataclass(frozen=True)
class Lever:
    """Bytes grow with the `power` of each of `values`, which `field` has now, but for the `fixed` ones. No value can be
    below `least`.
    """

    field: str
    values: tuple[int, ...]
    power: int = 1
    fixed: int = 0
    least: int = 1

    def lowered(self, bytes_now: int, to_bytes: float) -> str | None:
        """What to set so that what takes `bytes_now` fits into `to_bytes`, cut to two digits; None: it cannot."""
        if bytes_now <= self.fixed:
            return None
        share = max(0.0, (to_bytes - self.fixed) / (bytes_now - self.fixed)) ** (1 / self.power)
        values = [two_digits(int(value * share)) for value in self.values]
        if min(values) < self.least:
            return None
        return ", ".join(map(str, values)) if len(values) > 1 else f"{values[0]:,}"


@dataclass(frozen=True)
class Part:
    """`bytes` that are taken by `what`; each of the `levers` makes them less."""

    what: str
    bytes: int
    levers: tuple[Lever, ...]
    is_in_each: bool = False
    """Whether every rank has all of it."""

    def __str__(self) -> str:
        return f"{self.what} = {in_gb(self.bytes)}"

    def lowered(self, to_bytes: float) -> str | None:
        """What to set so that this part fits into `to_bytes`; None: it cannot be that small."""
        found = {lever.field: lever.lowered(self.bytes, to_bytes) for lever in self.levers}
        ways = [f"training.{field} to {value}" for field, value in found.items() if value is not None]
        if not ways:
            return None
        is_new = any(field.startswith(SECTIONS) for field, value in found.items() if value is not None)
        return f"lower {' or '.join(ways)}" + " in a new run" * is_new


def largest(parts: Sequence[Part]) -> Part | None:
    """The one that takes most; None where nothing is known of what takes the memory."""
    return max((part for part in parts if part.bytes), key=lambda part: part.bytes, default=None)


def two_digits(value: int) -> int:
    """`value` cut to two digits: 1,234 → 1,200."""
    place: int = 10 ** max(0, len(str(value)) - 2)
    return value // place * place


def in_gb(value: float) -> str:
    """Bytes, in words."""
    return f"{value / _GB:,.2f} GB"
