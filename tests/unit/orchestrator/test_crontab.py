from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import NOW, no_code
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.config import RunConfig
from orchestrator.errors import ConfigError, StorageError
from orchestrator.hosts import cron, cronhost
from orchestrator.hosts.board import BoardWriter
from orchestrator.processes import host_name, myself
from orchestrator.run.begin import begin, prepare_folder
from orchestrator.run.cronrecord import CronHost, cron_record, host_of
from orchestrator.run.lease import Owner, highest_epoch, living_owner
from orchestrator.run.rundir import Run, RunDir

RUN_ID = "toy-0123abcd"
LINE = b"* * * * * tick" + cron.tag_of(RUN_ID).encode() + b"\n"
#: Whatever other people have in their tables; each line ends, as crontab(1) demands.
OTHER_LINES = st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"") + b"\n"), max_size=6)


def mentions(line: bytes) -> bool:
    return line.rstrip(b"\r\n").endswith(cron.tag_of(RUN_ID).encode())


@given(before=OTHER_LINES, after=OTHER_LINES)
def test_a_line_comes_once_and_goes_and_all_others_stay_byte_for_byte(before: list[bytes], after: list[bytes]) -> None:
    table = b"".join(line for line in before + after if not mentions(line))

    once = cron.with_line(table, RUN_ID, LINE)

    assert once == table + LINE
    assert cron.with_line(once, RUN_ID, LINE) == once
    assert cron.without_line(once, RUN_ID) == table
    renewed = LINE.replace(b"tick", b"newer tick")
    assert cron.with_line(once, RUN_ID, renewed) == table + renewed


def test_the_line_of_another_run_whose_name_ends_alike_is_not_ours() -> None:
    other = b"* * * * * tick" + cron.tag_of(f"my-{RUN_ID}").encode() + b"\n"
    assert cron.without_line(other, RUN_ID) == other
    assert cron.without_line(cron.with_line(other, RUN_ID, LINE), RUN_ID) == other


def test_two_lines_of_one_run_become_one_in_the_place_of_the_first() -> None:
    other = b"0 3 * * * backup\n"
    assert cron.with_line(LINE + other + LINE, RUN_ID, LINE) == LINE + other


def test_a_table_without_a_last_line_break_gets_one() -> None:
    assert cron.with_line(b"0 3 * * * backup", RUN_ID, LINE) == b"0 3 * * * backup\n" + LINE


def a_run() -> Run:
    return Run(
        run_id=RUN_ID,
        revision=0,
        created_at=NOW,
        executor="local",
        config=RunConfig(),
        config_path="/x/cluster_config.json",
        folder="/x",
        python="python3",
        code="c0de",
        identity=None,
        env={},
        controller_python="/opt/my python/bin/python3",
    )


def as_cron_reads(command: str) -> str:
    """What it hands to the shell (do_command.c of Debian's and of cronie): up to a bare per cent. A backslash makes the
    letter behind it a plain one, and goes where that is a per cent.
    """
    read, letters = "", iter(command)
    for letter in letters:
        if letter == "%":
            break
        behind = next(letters) if letter == "\\" else ""
        read += behind if behind == "%" else letter + behind
    return read


@pytest.mark.parametrize(
    "folder",
    ["/runs/plain", "/runs/with space", "/runs/50% done's", "/runs/$HOME;`x`#1", "/runs/a\\%b", "/runs/a\\\\%b\\"],
)
def test_a_line_is_one_command_of_a_shell_whatever_the_folder_is_called(folder: str) -> None:
    run = a_run()

    line = cron.line_of(run, RunDir(Path(folder))).decode()

    assert line.startswith("* * * * * /usr/bin/env ")
    assert line.endswith(f" # anchorleg {run.run_id}\n")
    words = shlex.split(as_cron_reads(line[len("* * * * * ") :]), comments=True)
    assert words[1:3] == [f"PYTHONPATH={folder}/code/c0de", "/opt/my python/bin/python3"]
    assert words[-5:] == ["tick", "--cron", run.run_id, "--run-dir", folder]


@pytest.mark.parametrize("folder", ["/runs/two\nlines", "/runs/" + "long" * 300])
def test_a_folder_that_fits_in_no_line_is_refused_by_name(folder: str) -> None:
    with pytest.raises(ConfigError, match="shorter path"):
        cron.line_of(a_run(), RunDir(Path(folder)))


class TestWithAFakeCrontab:
    @pytest.fixture
    def path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("PATH", str(tmp_path))
        return tmp_path

    def says(self, folder: Path, words: str, code: int) -> None:
        command = folder / "crontab"
        command.write_text(f"#!/bin/sh\necho '{words}' >&2\nexit {code}\n")
        command.chmod(0o755)

    def test_no_table_yet_is_an_empty_one(self, path: Path) -> None:
        self.says(path, "no crontab for me", 1)
        assert cron.read_table() == b""

    def test_one_who_may_not_is_told_in_crontabs_words(self, path: Path) -> None:
        self.says(path, "You (me) are not allowed to use this program (crontab)", 1)
        with pytest.raises(ConfigError, match=r"not allowed to use this program.*--via daemon"):
            cron.read_table()

    def test_a_machine_without_it_is_named(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cron, "_path", lambda: str(path))
        with pytest.raises(ConfigError, match="no crontab on this machine"):
            cron.read_table()

    @pytest.mark.parametrize("before", [None, CronHost(host="login2", run_id=RUN_ID, since=1.0)])
    def test_a_line_that_is_refused_is_not_claimed(
        self, path: Path, monkeypatch: pytest.MonkeyPatch, before: CronHost | None
    ) -> None:
        self.says(path, "no crontab for me", 1)
        monkeypatch.setenv("XDG_STATE_HOME", str(path))
        run_dir = RunDir(path / "run")
        run_dir.lease.mkdir(parents=True)
        if before is not None:
            cron_record(run_dir).write_text(before.model_dump_json())
        with pytest.raises(ConfigError, match="refused the new table"):
            cron.register(a_run(), run_dir, NOW)
        assert host_of(run_dir) == before

    def test_one_that_hangs_is_given_up(self, path: Path) -> None:
        self.says(path, "", 0)
        (path / "crontab").write_text("#!/bin/sh\nexec /bin/sleep 60\n")
        with pytest.raises(ConfigError, match="did not answer"):
            cron.read_table(timeout_s=0.2)


def test_another_machines_line_is_left_to_that_machine(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cron, "take_out", lambda _: pytest.fail("not on this machine"))
    assert host_of(run_dir) is None
    assert cron.unregister(RUN_ID, run_dir)
    (run_dir.lease / "cron.json").write_text('{"host": "login2", "run_id": "toy-0123abcd", "since": 1.0}')

    assert not cron.unregister(RUN_ID, run_dir)

    registered = host_of(run_dir)
    assert registered is not None
    assert (registered.host, registered.is_here) == ("login2", False)


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    (tmp_path / "lease").mkdir()
    return RunDir(tmp_path)


def test_a_lock_that_another_one_holds_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with cron._alone():
        [lock] = tmp_path.rglob("crontab-*.lock")
        assert (lock.stat().st_mode & 0o077, lock.parent.stat().st_mode & 0o077) == (0, 0)
        with pytest.raises(ConfigError, match="another command of yours has changed the crontab"), cron._alone(0.0):
            pass
    with cron._alone():
        pass


def owned_by(run_dir: RunDir, command: str, host: str) -> None:
    """Somebody on `host` owned the next epoch, and let go of it."""
    epoch = highest_epoch(run_dir) + 1
    owner = Owner(epoch=epoch, process=replace(myself(), host=host), since=NOW, command=command)
    run_dir.disk.write(run_dir.lease / str(epoch), owner.model_dump_json().encode())
    run_dir.disk.write(run_dir.lease / f"{epoch}.released", b"{}")


def test_the_line_of_a_run_that_another_login_node_looks_after_is_taken_out_while_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = RunDir(tmp_path / "run")
    prepare_folder(run_dir)
    config = RunConfig.model_validate({"run_name": "toy", "command": ["true"], "executor": "local"})
    run = begin(config, tmp_path / "c.json", run_dir, {}, NOW, fix=no_code)
    there = CronHost(host="login2", run_id=run.run_id, since=NOW)
    run_dir.disk.write(cron_record(run_dir), there.model_dump_json().encode())
    taken_out: list[str] = []
    monkeypatch.setattr(cron, "take_out", taken_out.append)
    ticks: list[int] = []
    over = SimpleNamespace(tick=lambda: ticks.append(1), over=False)
    monkeypatch.setattr(cronhost, "make_controller", lambda *_, **__: over)
    monkeypatch.setattr(BoardWriter, "tell", lambda _: None)

    # its name alone is no proof: of a crontab that login nodes share one of them runs the lines
    for command, host in (("start --via cron", "login2"), ("tick --cron", host_name()), ("start --via cron", "login2")):
        owned_by(run_dir, command, host)
        assert cronhost.tick_for_cron(run_dir, run.run_id) == 0
    assert (len(ticks), taken_out) == (3, [])

    owned_by(run_dir, "tick --cron", "login2")
    assert cronhost.tick_for_cron(run_dir, run.run_id) == 0

    assert (len(ticks), taken_out) == (3, [run.run_id])
    assert host_of(run_dir) == there
    assert living_owner(run_dir) is None
    assert "cron on login2" in run_dir.log.read_text()


@pytest.mark.parametrize("is_log_writable", [True, False])
def test_a_file_that_cannot_be_used_is_a_trouble_that_is_told_once_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *, is_log_writable: bool
) -> None:
    run_dir = RunDir(tmp_path / "run")
    run_dir.path.mkdir()
    config = RunConfig.model_validate({"run_name": "toy", "command": ["true"], "executor": "local"})
    run = begin(config, tmp_path / "c.json", run_dir, {}, NOW, fix=no_code)
    run_dir.lease.touch()  # no folder: an OSError, for root, too
    if not is_log_writable:
        run_dir.log.mkdir()
    for is_told in (is_log_writable, False):
        assert cronhost.tick_for_cron(run_dir, run.run_id) == StorageError.exit_code
        assert ("lease" in capsys.readouterr().err) is is_told
