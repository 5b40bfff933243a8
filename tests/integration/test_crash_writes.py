"""kill -9 of the controller before every single write that matters: enumerated, not drawn."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from daemons import WORK_S
from relay import PROGRAMS, SUPPORT, NewRelay, Relay

#: Each must have been died at; the names are the run folder's, numbers and temporary parts left out.
ALWAYS = ("link /lease/", "replace /run.json", "replace /ledger-", "fsync /events-", "submit ")


#: Every so many-th call in the quick suite.
QUICK = 5
TWO = {"experiments": [{"name": "a"}, {"name": "b"}], "slurm": {"max_jobs": 1, "time_limit": "1:00:00"}}
SCENARIOS = pytest.mark.parametrize(
    ("scenario", "pace_s", "config"), [("start", 0.001, {}), ("relay", 0.05, {}), ("requests", 0.05, TWO)]
)


def died_at(relay: Relay, scenario: str, stride: int) -> list[str]:
    env = {**relay.env, "PYTHONPATH": f"{relay.env['PYTHONPATH']}:{SUPPORT}"}
    done = subprocess.run(
        [sys.executable, str(PROGRAMS / "every_write.py"), scenario, str(stride)],
        cwd=relay.folder, env=env, capture_output=True, text=True, check=False, timeout=WORK_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


@pytest.mark.long
@SCENARIOS
def test_killed_before_some_writes_of_a_tick_the_run_goes_on_exactly_once(
    new_relay: NewRelay, scenario: str, pace_s: float, config: dict[str, Any]
) -> None:
    relay = new_relay(total=12, pace_s=pace_s, own_code=True, **config)

    assert len(died_at(relay, scenario, QUICK)) >= 4


@pytest.mark.long
@SCENARIOS
def test_killed_before_each_write_of_a_tick_the_run_goes_on_exactly_once(
    new_relay: NewRelay, scenario: str, pace_s: float, config: dict[str, Any]
) -> None:
    relay = new_relay(total=12, pace_s=pace_s, own_code=True, **config)

    places = died_at(relay, scenario, 1)

    for name in (*ALWAYS, "replace /jobs/", *(("rename /code/",) if scenario == "start" else ())):
        assert any(place.startswith(name) for place in places), (name, places)
    assert sum(place.startswith("replace /ledger-") for place in places) == 2
