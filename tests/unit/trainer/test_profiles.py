"""Whatever name `trainer autotune` kept its measurement under, `trainer actors` finds it on the same machine."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from trainer.machine.host import Host
from trainer.tuning.autotune import (
    Inference,
    MachineRates,
    Stepping,
    cache_file,
    find_profile,
    versions_here,
    write_facts,
)

GB = 2**30
HERE = Host("laptop", 8, 16 * GB, 11 * GB)
ELSEWHERE = replace(HERE, name="desktop", cores=4, memory_bytes=32 * GB)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def kept(name: str, host: Host = HERE, at: float = 1.0, **changes: object) -> None:
    one = Inference("cpu", 1, 4000.0)
    facts = MachineRates(host, "", "", (Stepping(4, 2, 900.0),), (one,), versions_here(), at, 20.0)
    write_facts(cache_file(name), replace(facts, **changes))


def test_this_machines_name_is_the_default():
    kept("anna", at=5.0)
    kept("laptop")
    assert (find_profile(None, HERE).name, find_profile(None, HERE).note) == ("laptop", "")
    assert (find_profile("anna", HERE).name, find_profile("anna", HERE).note) == ("anna", "")


def test_without_one_the_newest_that_was_measured_here_is_found():
    kept("old", at=1.0)
    kept("new", at=2.0)
    kept("other", ELSEWHERE, at=3.0)
    cache_file("torn").write_text("{")
    found = find_profile(None, HERE)
    assert found.name == "new"
    assert found.note == "going by the profile new, which `trainer autotune` measured on this machine"


def test_where_nothing_was_measured_nothing_is_said():
    assert find_profile(None, HERE).note == ""
    assert "`trainer autotune --user-id anna` makes it" in find_profile("anna", HERE).note


def test_a_profile_that_cannot_be_used_is_named_with_the_reason():
    path = cache_file("laptop")
    kept("laptop", ELSEWHERE)
    assert (
        "measured on a machine with 4 cores and 32.0 GB, and this one has 8 cores and 16.0 GB"
        in find_profile(None, HERE).note
    )
    kept("laptop", versions={**versions_here(), "torch": "1"})
    assert "other versions (torch); it is not used" in find_profile(None, HERE).note
    for damage in ("{", "[]", json.dumps({"format": -1}), ""):
        path.write_text(damage)
        assert f"the profile {path} is damaged" in find_profile(None, HERE).note
        assert "\n" not in find_profile(None, HERE).note
