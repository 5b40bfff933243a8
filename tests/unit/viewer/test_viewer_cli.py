"""The command: what it finds by a word, and one sentence with its code for what it does not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import NOW
from daemons import PATIENCE_S
from refused import refused
from watched_runs import a_watched_run

from orchestrator.run.rundir import RunDir, load_run, register
from viewer import cli
from viewer.sources.found import find_source


@pytest.fixture(autouse=True)
def a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(home)
    yield home
    for number, handler in before.items():
        signal.signal(number, handler)


def typed(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["viewer", *words])
    try:
        cli.main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def a_run(folder: Path, name: str = "mt10") -> RunDir:
    return a_watched_run(folder, NOW, name=name, slots=1, jobs=1)


#: A viewer that takes a moment to end, so that there is time for a second signal.
ENDING = """
import signal, sys
from viewer import cli

def act():
    try:
        print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN, flush=True)
        signal.pause()
    finally:
        print("ending", flush=True)
        sys.stdin.read()

signal.signal(signal.SIGHUP, getattr(signal, sys.argv[1]))  # as a terminal or `nohup` leaves it
cli.main(act)
"""


@pytest.mark.parametrize(("number", "nohup"), [(signal.SIGHUP, False), (signal.SIGTERM, False), (signal.SIGTERM, True)])
def test_a_closed_terminal_ends_it_in_order_and_nohup_outlives_it(number: signal.Signals, nohup: bool) -> None:
    words = [sys.executable, "-c", ENDING, "SIG_IGN" if nohup else "SIG_DFL"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdin is not None
            assert child.stdout.readline() == f"{nohup}\n"
            child.send_signal(number)
            assert child.stdout.readline() == "ending\n"
            child.send_signal(signal.SIGHUP)
            child.stdin.close()
            assert child.wait(PATIENCE_S) == 0
        finally:
            child.kill()


def test_a_run_is_found_by_its_name_its_id_and_its_folder(tmp_path: Path) -> None:
    run_dir = a_run(tmp_path / "elsewhere" / "mt10")
    run = load_run(run_dir)
    register(run, run_dir, NOW)
    for word in ("mt10", run.run_id, str(run_dir.path)):
        found = find_source(word)
        assert (found.kind, found.place) == ("runs", "mt10")
    (tmp_path / "cluster_config.json").write_text("{")
    with refused("folder.unused-config"):
        find_source(str(tmp_path))
    value = json.loads(run_dir.run_file.read_text())
    run_dir.run_file.write_text(json.dumps({**value, "config_path": str(tmp_path / "cluster_config.json")}))
    assert find_source(str(tmp_path)).place == tmp_path.name  # a faulty config still leads to the run that it began


def test_what_lies_on_another_machine_is_shown_on_a_page_and_in_no_other_way(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with refused("remote.lies-there", what="anna@hpc:runs/mt10"):
        find_source("anna@hpc:runs/mt10")
    for words in (("--json",), ("--headless",), ("--socket", "auto"), ("--allow-host", "site")):
        assert typed(monkeypatch, "anna@hpc:runs/mt10", *words) == 2
        assert "[remote.only-page]" in capsys.readouterr().err
    assert typed(monkeypatch, "mt10", "--remote-command", "/opt/viewer") == 2
    assert typed(monkeypatch, "hpc:mt10", "--remote-command", "viewer") == 2
    assert typed(monkeypatch, "a;b@hpc:mt10") == 2


def test_what_is_not_there_names_what_is(tmp_path: Path) -> None:
    run_dir = a_run(tmp_path / "mt10")
    register(load_run(run_dir), run_dir, NOW)
    (tmp_path / "music").mkdir()
    (tmp_path / "music" / "song.mp3").touch()
    music, slot = str(tmp_path / "music"), run_dir.slot(0)
    for word, name, fields in (
        ("~nobody-of-this-name/runs", "folder.not-there", {"path": "~nobody-of-this-name/runs"}),
        ("mt1O", "run.unknown", {"hint": 'did you mean "mt10"?'}),
        ("runs/none", "folder.not-there", {"path": "runs/none", "known": "mt10"}),
        (music, "folder.no-run", {"path": Path(music), "names": "song.mp3", "known": "mt10"}),
        (str(slot), "folder.one-slot", {"path": slot, "run": run_dir.path}),
    ):
        with refused(name, **fields):
            find_source(word)


def test_the_export_is_one_file_that_calls_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir, out = a_run(tmp_path / "mt10"), tmp_path / "page.html"
    assert typed(monkeypatch, "export", str(run_dir.path), "--out", str(out)) == 0
    assert str(out) in capsys.readouterr().out
    text = out.read_text()
    assert "connect-src" not in text
    assert "default-src 'none'" in text
    assert ' src="' not in text
    assert "<link" not in text
    inlined = text.split('id="picture">')[1].split("</script>")[0]
    assert json.loads(inlined)["is"]["run"]["name"] == "mt10"
    assert [place for place in (tmp_path, Path.home()) if str(place) in inlined] == [], "it may be sent to somebody"
    assert "<" not in inlined


@pytest.mark.parametrize("way", [["--json"], ["export", "--out", b"page-\xff.html"]])
def test_a_folder_whose_name_is_no_text_is_no_traceback(tmp_path: Path, way: list[str | bytes]) -> None:
    """Its files were brought from elsewhere, under a name of another encoding."""
    folder = os.fsencode(tmp_path) + b"/run-\xff"
    os.rename(a_run(tmp_path / "mt10").path, folder)
    done = subprocess.run(
        [sys.executable, "-m", "viewer", *way, folder], capture_output=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONUTF8": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    if way == ["--json"]:
        assert json.loads(done.stdout)["run"]["folder"].endswith("run-\udcff")
    else:
        assert done.stdout.startswith(b"page-\\udcff.html: ")
