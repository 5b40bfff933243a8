"""What `syncd doctor` gathers. What it makes of that: `tests/unit/test_checks.py`."""

from __future__ import annotations

import subprocess

import pytest

from anchorleg.disks import filesystem_of
from syncd.access import survey
from syncd.doctor import facts
from syncd.doctor.facts import Space, ask_other_side, quota_left, told_space
from syncd.errors import SecondFactorError
from syncd.remote import Remote


def test_a_quota_is_read_where_one_is_set_and_for_the_disk_that_is_meant():
    said = (
        "Disk quotas for user anna (uid 1000):\n"
        "     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace\n"
        "/dev/sda1     900*  800    1000   6days       9       0       0\n"
        "fs:/home       10     0    5000                3       0       0\n"
        "/dev/sdb1      10     0       0                3       0       0\n"
    )
    assert quota_left(said) == 100 * 1024
    assert quota_left(said, ["fs:/home"]) == 4990 * 1024
    assert quota_left(said, ["/dev/sdb1"]) is None
    assert quota_left("") is None


@pytest.mark.parametrize("number", ["\N{SUPERSCRIPT TWO}", "9" * 5000])
def test_a_number_that_is_none_leaves_the_room_unknown(number):
    found = {"df": [f"fs:/home 9 1 {number} 1% /home"], "quota": [f"fs:/home {number} 0 5000 3 0 0"]}
    assert told_space(found) == Space()


def test_what_the_other_sides_shell_is_asked_is_one_line_for_any_shell():
    line = survey.health_question("/sha red's")
    assert line.isprintable()
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    assert survey.marked(done.stdout)["asked"] == ["yes"]


def test_a_mirror_behind_a_link_is_on_the_file_system_that_the_link_leads_to(tmp_path):
    (tmp_path / "weights").symlink_to("/proc")
    assert filesystem_of(tmp_path / "weights") == "proc" != filesystem_of(tmp_path / "not yet")


def test_a_second_factor_is_not_said_to_be_a_refused_key(monkeypatch):
    def asked(remote, line):
        raise SecondFactorError("login.no-answers", place="cluster lets nobody in by a key alone")

    monkeypatch.setattr(facts.keys, "ask_shell", asked)
    there, why = ask_other_side(Remote(host="cluster", path="/shared"))
    assert there is None
    assert "second factor" in why
    assert "refused" not in why
