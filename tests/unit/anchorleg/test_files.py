from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import PATIENCE_S
from leftovers import descriptors_below, unfinished

from anchorleg.files import (
    append_lines,
    as_line,
    create_exclusive,
    patiently,
    publish_folder,
    read_regular,
    sweep_temporary,
    write_bytes,
)

OLD, NEW = b"old " * 5000, b"new! " * 7000

#: A program that kills itself with SIGKILL just before its k-th call of the operating system, or just after it.
KILLED = """
import builtins, os, signal, sys
from pathlib import Path
from anchorleg import files

when, after = int(sys.argv[1]), sys.argv[2] == "after"
calls = 0

def fatal(call):
    def wrapped(*args, **kwargs):
        global calls
        calls += 1
        if calls == when and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = call(*args, **kwargs)
        if calls == when and after:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return wrapped

class Torn:
    # A file whose every write, flush and close is a call of its own; a write reaches the disk in two halves.
    def __init__(self, file):
        self.file = file
        self.flush, self.fileno, self.close = fatal(file.flush), file.fileno, fatal(file.close)
    def write(self, data):
        half = fatal(lambda part: (self.file.write(part), self.file.flush()))
        half(data[: len(data) // 2])
        half(data[len(data) // 2 :])
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.close()

real_open = builtins.open
files.open = fatal(lambda *args: Torn(real_open(*args)))
names = ("open", "fsync", "replace", "rename", "link", "close", "stat")
originals = {name: getattr(os, name) for name in names}
Path.unlink = fatal(Path.unlink)
for name, call in originals.items():
    setattr(os, name, fatal(call))
exec(sys.argv[3])
for name, call in originals.items():
    setattr(os, name, call)
print(calls)
"""


def killed_at(when: int, moment: str, folder: Path, code: str) -> int | None:
    """Run `code` in `folder` and kill it there. Returns None if it was killed, else how many calls it made."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(when), moment, code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[3]), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def every_death(tmp_path: Path, code: str) -> list[Path]:
    """One folder for each call of `code` before and after which it was killed, and one in which it came through."""
    folders = []
    for moment in ("before", "after"):
        when = 0
        survived = None
        while survived is None:
            when += 1
            folder = tmp_path / f"{moment}-{when}"
            folder.mkdir()
            (folder / "it").write_bytes(OLD)
            (folder / "temporary").mkdir()
            (folder / "temporary" / "weights").write_bytes(NEW)
            survived = killed_at(when, moment, folder, code)
            folders.append(folder)
        assert when == survived + 1
    return folders


class TestDeathAtEveryCall:
    def test_a_replaced_file_is_the_old_one_or_the_new_one(self, tmp_path: Path) -> None:
        code = "files.write_bytes(Path('it'), b'new! ' * 7000)"
        found = [(folder / "it").read_bytes() for folder in every_death(tmp_path, code)]
        assert set(found) == {OLD, NEW}
        assert found[-1] == NEW

    def test_a_file_created_exclusively_is_absent_or_whole_and_nobody_can_make_a_second(self, tmp_path: Path) -> None:
        code = "files.create_exclusive(Path('claim'), b'new! ' * 7000)"
        for folder in every_death(tmp_path, code):
            claim = folder / "claim"
            there = claim.exists()
            assert not there or claim.read_bytes() == NEW
            assert create_exclusive(claim, b"mine") is not there

    def test_a_published_folder_is_absent_or_whole(self, tmp_path: Path) -> None:
        code = "files.publish_folder(Path('temporary'), Path('100'))"
        seen = set()
        for folder in every_death(tmp_path, code):
            there = (folder / "100").exists()
            seen.add(there)
            assert (folder / "temporary").exists() is not there
            assert ((folder / ("100" if there else "temporary")) / "weights").read_bytes() == NEW
        assert seen == {True, False}


class TestErrors:
    @pytest.fixture
    def full_disk(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def no_space(_fd: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", no_space)

    def test_a_full_disk_leaves_the_old_file_and_no_litter(self, tmp_path: Path, full_disk: None) -> None:
        (tmp_path / "it").write_bytes(OLD)
        with pytest.raises(OSError, match="No space left"):
            write_bytes(tmp_path / "it", NEW)
        assert [path.name for path in tmp_path.iterdir()] == ["it"]
        assert (tmp_path / "it").read_bytes() == OLD


class TestExclusiveCreation:
    def test_a_repeated_link_that_found_its_own_success_is_a_success(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        link = os.link

        def repeated_by_the_client(source: Path, target: Path) -> None:
            link(source, target)
            link(source, target)

        monkeypatch.setattr(os, "link", repeated_by_the_client)
        assert create_exclusive(tmp_path / "claim", b"one")


def test_a_line_that_was_written_in_part_spoils_no_other(tmp_path: Path) -> None:
    events = tmp_path / "events"
    append_lines(events, as_line({"n": 0}))
    with open(events, "a") as file:
        file.write('{"n": 1, "te')

    append_lines(events, as_line({"n": 2}))

    assert events.read_text().splitlines() == ['{"n":0}', '{"n": 1, "te', '{"n":2}']


@pytest.mark.parametrize("others", [b"", b"another's\n"])
def test_on_a_full_disk_all_lines_are_there_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: bytes
) -> None:
    """What another process appended at that moment stays, whatever became of ours."""
    events = tmp_path / "events"
    append_lines(events, as_line({"n": 0}))
    write = os.write

    def in_part(fd: int, data: bytes) -> int:
        written = write(fd, data[:13])
        if others:
            with open(events, "ab") as file:
                file.write(b"\n" + others)
        return written

    monkeypatch.setattr(os, "write", in_part)
    with pytest.raises(OSError, match=r"No space left on device: .*events"):
        append_lines(events, as_line({"n": 1}), as_line({"n": 2}))
    monkeypatch.undo()

    append_lines(events, as_line({"n": 3}))
    lines = events.read_bytes().splitlines(keepends=True)
    assert [lines[0], lines[-1]] == [as_line({"n": 0}), as_line({"n": 3})]
    assert lines[-2:-1] == [others] if others else len(lines) == 2


@pytest.mark.parametrize(
    ("number", "tries"),
    [(errno.ESTALE, 4), (errno.ENOENT, 4), (errno.ENOSPC, 4), (errno.EACCES, 1), (errno.ENOTDIR, 1), (errno.EROFS, 1)],
)
def test_what_no_moment_changes_is_tried_once(number: int, tries: int) -> None:
    looked, paused = [], []

    def look() -> None:
        looked.append(1)
        raise OSError(number, os.strerror(number))

    with pytest.raises(OSError, match=os.strerror(number)):
        patiently(look, tries=4, sleep=paused.append, monotonic=lambda: 0.0)
    assert (len(looked), len(paused)) == (tries, tries - 1)


def test_what_killed_writers_left_goes_and_nothing_else_and_nothing_behind_a_link(tmp_path: Path) -> None:
    folder, link = tmp_path / "here", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    dead, living = unfinished(folder, "x.json")
    before = living.stat().st_mtime - 1
    for other in ("x.json", "x.tmp", ".hidden"):
        (folder / other).touch()
        os.utime(folder / other, (0, 0))
    sweep_temporary(link, before)
    assert dead.exists()
    sweep_temporary(folder, before)
    assert {path.name for path in folder.iterdir()} == {living.name, "x.json", "x.tmp", ".hidden"}
    sweep_temporary(tmp_path / "absent", before)


def test_a_folder_is_never_published_over_another(tmp_path: Path) -> None:
    for name in ("temporary", "100"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    with pytest.raises(OSError, match="not empty"):
        publish_folder(tmp_path / "temporary", tmp_path / "100")
    assert (tmp_path / "100" / "100").exists()


class TestAFileOfSomebodyElse:
    @pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
    def test_what_is_none_is_not_waited_for_and_no_descriptor_stays(self, tmp_path, make):
        make(tmp_path / "file")
        with pytest.raises(OSError, match="not a regular file") as caught:
            read_regular(tmp_path / "file", 9)
        assert caught.value.errno == errno.EINVAL
        assert descriptors_below(tmp_path) == []
