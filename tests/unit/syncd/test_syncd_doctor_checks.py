"""What `syncd doctor` makes of the facts: which line says what, and how bad it is."""

from __future__ import annotations

import io
import subprocess

import pytest
from rich.console import Console
from rich.text import Text

from anchorleg.findings import Finding, Level, findings_lines, findings_table, total
from syncd.access import survey
from syncd.doctor import gather
from syncd.doctor.checks import examine
from syncd.doctor.facts import ClientFacts, Error, HostKeyFacts, LaptopFacts, ServiceFacts, Side, Space, Visit
from syncd.doctor.gather import filesystem_of, quota_left, told_space
from syncd.errors import SecondFactorError
from syncd.remote import Remote
from syncd.wire.protocol import Standing

MIB, GIB = 2**20, 2**30
#: What they say of themselves; the second as macOS 15 has it (not tried there).
WELL = Visit(
    transport="openssh", version="1.0", clock_offset_s=0.0, contributor="anna", standing=Standing(), policies=2
)


def some_facts(**changes):
    """A laptop on which all is well, but for `changes`."""
    values = {
        "settings_file": "~/.config/anchorleg/syncd.json", "stored": True, "remote": "cluster:/shared",
        "is_local": False, "folder": "~/shared_weights", "chosen": "openssh",
        "host_key": HostKeyFacts(state="known", fingerprint="SHA256:abc"), "visit": WELL,
        "here": Side(space=Space(free_bytes=50 * GIB), filesystem="ext4"),
        "there": Side(space=Space(free_bytes=50 * GIB), filesystem="lustre"),
        "service": ServiceFacts(manager="systemd", installed=True, running=True, detail="active (running)"),
        "client": ClientFacts(runs=True, verb="watch", state="live", age_s=2.0),
    }  # fmt: skip
    return LaptopFacts.model_validate(values | changes)


def line(check, **changes):
    (found,) = (each for each in examine(some_facts(**changes)) if each.check == check)
    return found


def test_a_laptop_on_which_all_is_well_has_no_advice():
    found = examine(some_facts())
    assert {each.level for each in found} == {Level.OK}
    assert {each.advice for each in found} == {""}
    assert total(found) == f"{len(found)} ok"


@pytest.mark.parametrize(("offset_s", "level"), [(1.5, "ok"), (-5.0, "warning"), (3600.0, "problem")])
def test_a_clock_that_is_off_is_told_by_how_much(offset_s, level):
    found = line("clock", visit=WELL.model_copy(update={"clock_offset_s": offset_s}))
    assert found.level == level
    assert found.found.startswith(
        f"the other side's is {abs(offset_s):.1f} s {'ahead of' if offset_s > 0 else 'behind'}"
    )


@pytest.mark.parametrize(
    ("space", "level", "words"),
    [
        (Space(), "ok", "its free space is not told"),
        (Space(free_bytes=50 * GIB, quota_left_bytes=100 * MIB), "warning", "50 GiB free, 100 MiB left of the quota"),
        (Space(quota_left_bytes=0), "problem", "0 B left of the quota"),
        (Space(free_bytes=MIB), "problem", "1 MiB free"),
    ],
)
def test_room_is_the_less_of_disk_and_quota(space, level, words):
    found = line("disk here", here=Side(space=space))
    assert (found.level, found.found) == (level, words)


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


@pytest.mark.parametrize(
    ("kind", "level"), [("nfs4", "warning"), ("fuse.sshfs", "warning"), ("apfs", "ok"), ("", "ok")]
)
def test_a_mirror_on_a_network_folder_is_named(kind, level):
    found = line("mirror", here=Side(filesystem=kind))
    assert found.level == level
    assert "outbox" not in found.found  # how often it is looked at is not told by the kind of the disk


def test_an_inbox_that_is_nearly_full_is_named():
    found = line("inbox", visit=WELL.model_copy(update={"standing": Standing(segments=4_500, bytes=MIB)}))
    assert (found.level, found.found) == ("warning", "anna: 4,500 of 5,000 segments, 1 MiB wait there")


def test_no_inbox_is_a_warning_and_one_that_is_not_told_is_not():
    assert line("inbox", visit=WELL.model_copy(update={"contributor": None})).level is Level.WARNING
    assert line("inbox", visit=WELL.model_copy(update={"standing": None})).level is Level.OK


def test_a_service_that_died_and_one_that_was_never_wanted():
    died = ServiceFacts(manager="systemd", installed=True, running=False, detail="failed (failed)")
    assert line("service", service=died).level is Level.WARNING
    assert line("service", service=ServiceFacts(manager="systemd")).level is Level.OK
    assert line("service", service=ServiceFacts(error="there is no session")).level is Level.OK


def test_the_last_words_of_a_client_that_is_gone_are_told():
    found = line("last contact", client=ClientFacts(state="offline", age_s=7_300.0, error="no way to cluster now"))
    assert (found.level, found.found) == ("warning", "no client runs; 2 h ago it said: no way to cluster now")


def test_an_older_server_is_the_servers_line():
    error = Error(kind="RemoteError", sentence="the other side speaks protocol 1, this one 2")
    found = line("server", visit=Visit(transport="openssh", error=error))
    assert (found.level, found.found) == (Level.PROBLEM, error.sentence)
    assert "same version" in found.advice


def test_what_another_machine_said_cannot_move_the_cursor():
    assert Finding(check="x", level=Level.OK, found="a\x1b[2Jb\r\nc").found == r"a\x1b[2Jb  c"


def test_a_narrow_terminal_breaks_lines_and_loses_nothing():
    found = examine(
        some_facts(visit=Visit(transport="openssh", error=Error(kind="UnreachableError", sentence="w" * 90)))
    )
    for width in (80, 120):
        console = Console(width=width, force_terminal=True, color_system=None, file=io.StringIO())
        with console.capture() as capture:
            console.print(Text.assemble(*findings_table(found, width)))
        shown = capture.get()
        assert max(len(text) for text in shown.splitlines()) <= width
        assert "".join(shown.split()).count("w" * 90) == 1
    assert any(text.startswith("problem: login: www") for text in findings_lines(found))


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

    monkeypatch.setattr(gather.keys, "ask_shell", asked)
    there, why = gather._there(Remote(host="cluster", path="/shared"))
    assert there is None
    assert "second factor" in why
    assert "refused" not in why
