"""Folders without hard links, as mounted buckets are: refused in one sentence, before anything is begun."""

from __future__ import annotations

from pathlib import Path

import pytest
from relay import NewRelay, Relay

#: What goofys, s3fs and gcsfuse answer to link(2), and a mount that makes a copy instead.
BUCKET = """
import errno, os, shutil
def link(old, new, **_):
    if "ANSWER" == "a copy":
        return shutil.copy(old, new)
    number = getattr(errno, "ANSWER")
    raise OSError(number, os.strerror(number), str(old))
os.link = link
from orchestrator import cli
cli.main()
"""


def on_a_bucket(relay: Relay, answer: str, *words: str) -> tuple[int, str]:
    driver: Path = relay.folder / "bucket.py"
    driver.write_text(BUCKET.replace("ANSWER", answer))
    return relay.ended(relay.spawn(*words, driver=(str(driver),))), relay.output()


@pytest.mark.parametrize("answer", ["EPERM", "ENOTSUP", "ENOSYS", "a copy"])
def test_a_start_on_a_bucket_is_refused(new_relay: NewRelay, answer: str) -> None:
    relay = new_relay()

    code, said = on_a_bucket(relay, answer, "start")

    assert code == 7, said
    assert str(relay.run_dir) in said
    assert said.endswith("[run-dir.no-hard-links]\n")
    assert said.count("\n") == 1
    assert [path for path in relay.run_dir.rglob("*") if path.is_file()] == []


def test_the_doctor_names_the_bucket(new_relay: NewRelay) -> None:
    code, said = on_a_bucket(new_relay(), "EPERM", "doctor")

    assert code == 11, said
    assert "link does not work (Operation not permitted)" in said
    assert "not on a mounted bucket" in said
