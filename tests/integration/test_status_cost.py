"""What `status` costs: people and scripts ask it often, on login nodes that are shared."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

from relay import Done, NewRelay

#: Seconds of CPU for the whole command; the interpreter and pydantic are half of it.
STATUS_S = 0.4
HELP_S = 0.5
TRIES = 3


def cpu_s(run: Callable[..., Done], *words: str, cwd: Path) -> float:
    """The least of a few runs: another user of the machine makes each slower, never quicker."""
    spent = []
    for _ in range(TRIES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run(*words, cwd=cwd)
        assert done.code == 0, done.words
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(spent)


def test_status_and_help_are_quick(new_relay: NewRelay) -> None:
    relay = new_relay(total=3, slots=2)
    assert relay.run("start").code == 0

    assert cpu_s(relay.run, "status", cwd=relay.folder) < STATUS_S
    assert cpu_s(relay.run, "status", "toy", "--json", cwd=Path("/")) < STATUS_S
    assert cpu_s(relay.run, "--help", cwd=Path("/")) < HELP_S
