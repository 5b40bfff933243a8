"""The pages say what the code says."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path

import pytest
import typer

from orchestrator import errors
from orchestrator.cli import app
from orchestrator.reference import config_reference
from orchestrator.screens.runview import STATES
from syncd import errors as syncd_errors
from trainer import errors as trainer_errors
from trainer.sharing.segment import Reason
from viewer import errors as viewer_errors

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    ROOT / "examples/README.md",
    ROOT / "bench/results/README.md",
]


def test_the_config_reference_is_what_the_command_prints() -> None:
    assert (ROOT / "docs/config.md").read_text() == config_reference()


def test_every_exit_code_of_the_orchestrator_has_its_row() -> None:
    rows = codes_of("orchestrator")
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.AnchorlegError)]
    assert {kind.exit_code for kind in kinds} <= rows
    codes = [kind.exit_code for kind in kinds]
    assert len(codes) == len(set(codes)), "each kind of error has a code of its own"


def test_every_exit_code_of_the_trainer_has_its_row() -> None:
    kinds = [k for _, k in inspect.getmembers(trainer_errors, inspect.isclass) if hasattr(k, "exit_code")]
    assert {kind.exit_code for kind in kinds} <= codes_of("trainer")


def test_every_exit_code_of_syncd_has_its_row() -> None:
    kinds = [k for _, k in inspect.getmembers(syncd_errors, inspect.isclass) if hasattr(k, "exit_code")]
    assert {kind.exit_code for kind in kinds} <= codes_of("syncd")


def test_every_exit_code_of_the_viewer_has_its_row() -> None:
    kinds = [k for _, k in inspect.getmembers(viewer_errors, inspect.isclass) if hasattr(k, "exit_code")]
    assert {kind.exit_code for kind in kinds} <= codes_of("viewer")


def test_every_reason_to_refuse_a_segment_is_explained() -> None:
    section = (ROOT / "docs/troubleshooting.md").read_text().split("## Why a segment was refused")[1].split("\n## ")[0]
    assert {reason.value for reason in Reason} <= set(re.findall(r"`(\w+)`", section))


def test_each_sentence_that_the_page_on_troubles_quotes_is_said_somewhere() -> None:
    rows = re.findall(r"^\| (.*?) \|", (ROOT / "docs/troubleshooting.md").read_text(), re.MULTILINE)
    quoted = [words for row in rows for words in re.findall(r'"([^"]+)"', row)]
    assert len(quoted) > 6
    packages = [ROOT / package for package in ("orchestrator", "trainer", "syncd", "viewer")]
    files = [path for folder in packages for end in ("*.toml", "*.py", "*.js") for path in folder.rglob(end)]
    said = "\n".join(path.read_text() for path in files)
    assert [words for words in quoted if words not in said] == []


def test_every_state_of_a_slot_is_explained() -> None:
    section = (ROOT / "docs/troubleshooting.md").read_text().split("## States of a slot")[1].split("\n## ")[0]
    named = {word for cell in re.findall(r"^\| ([a-z ,]+) \|", section, re.MULTILINE) for word in cell.split(", ")}
    assert named == {"state", *STATES}


def codes_of(program: str) -> set[int]:
    page = (ROOT / "docs/troubleshooting.md").read_text()
    section = page.split(f"## Exit codes of `{program}`")[1].split("\n## ")[0]
    return {int(code) for code in re.findall(r"^\| (\d+) \|", section, re.MULTILINE)}


@pytest.mark.parametrize(("page", "table"), [("benchmarks.md", "ratios"), ("algorithms.md", "of_encoders")])
def test_the_tables_of_a_page_are_those_of_today(page: str, table: str) -> None:
    report = runpy.run_path(str(ROOT / "bench/report.py"))
    text = (ROOT / "docs" / page).read_text()
    assert len(report["PLACE"].findall(text)) > 1
    assert text == report["filled"](text, report[table]), "run bench/report.py --replace"


def test_a_page_whose_figures_nobody_measured_is_refused() -> None:
    report = runpy.run_path(str(ROOT / "bench/report.py"))
    with pytest.raises(SystemExit, match=r"asks for steping, and bench/report\.toml has no such table"):
        report["filled"]("## Stepping\n\n<!-- steping -->\n<!-- end -->\n")
    for where, missing in (({"of": "steping"}, "there is no"), ({"of": "stepping", "envs": "11"}, "has no row with")):
        report["SPEC"]["tables"]["stepping"] = [{"what": "", "says": "{a[steps_s]}", "a": where}]
        with pytest.raises(SystemExit, match=missing):
            report["ratios"]("stepping")


def test_the_list_of_the_raw_figures_has_each_of_them() -> None:
    report, results = runpy.run_path(str(ROOT / "bench/report.py")), ROOT / "bench/results"
    assert {path.stem for path in results.glob("*.csv")} - {"machines"} <= set(report["SPEC"]["figures"])
    assert (results / "README.md").read_text() == report["listing"](), "run bench/report.py --replace"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_shows_what_should_have_been_filled_in(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(), flags=re.DOTALL)  # code may speak of templates
    assert re.findall(r"@\{[^}]*\}|\{\{.*?\}\}", prose) == []


def test_the_page_on_the_architecture_can_be_read_in_one_go() -> None:
    assert len((ROOT / "docs/architecture.md").read_text().split()) <= 3600


def test_each_stop_of_a_walk_is_a_file_of_today() -> None:
    walks = (ROOT / "docs/architecture.md").read_text().split("## Three walks")[1].split("\n## ")[0]
    stops = [re.findall(r"`([\w./]+/[\w.]*)`", line) for line in re.findall(r"^\d+\. .*", walks, re.MULTILINE)]
    assert len(stops) == 30
    paths = {path for stop in stops for path in stop if "NAME" not in path and "<" not in path}
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_every_link_between_the_pages_leads_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_link_to_a_section_leads_to_its_heading() -> None:
    for page in PAGES:
        for target, section in re.findall(r"\]\(([^)#]*)#([^)]+)\)", page.read_text()):
            if not target.startswith("http"):
                there = page.parent / target if target else page
                assert section in sections_of(there), f"{page.name} links to {target}#{section}"


def sections_of(page: Path) -> set[str]:
    """The headings as links name them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_programs_of_the_page_are_those_of_the_examples() -> None:
    page = (ROOT / "docs/programs.md").read_text()
    files = [*(ROOT / "examples/foreign").iterdir(), *(ROOT / "examples/programs").iterdir()]
    programs = {path.name: path.read_text() for path in files}
    shown = re.findall(r"```(?:python|bash)\n(.*?)```", page, re.DOTALL)
    unknown = [block for block in shown if not any(block in text for text in programs.values())]
    assert unknown == []
    whole = {name for name, text in programs.items() if text in shown}
    assert whole == {"count.py", "fit_torch.py", "ppo_sb3.py", "count.sh"}
    assert programs["cluster_config.json"] in page
    assert [name for name in programs if not name.endswith(".json") and f"/{name})" not in page] == []


def test_the_files_of_the_plugin_page_are_those_that_the_tests_train() -> None:
    page, folder = (ROOT / "docs/plugins.md").read_text(), ROOT / "tests/plugin"
    blocks = re.findall(r"```(?:toml|python)\n(.*?)```", page, re.DOTALL)
    shown = [block for block in blocks if "class Reinforce" not in block]  # tests/conformance/test_plugin_page.py
    files = [path.read_text() for path in sorted(folder.rglob("*")) if path.suffix in {".py", ".toml"}]
    assert len(shown) == 2
    assert [block for block in shown if not any(block in text for text in files)] == []


def test_of_the_readmes_commands_for_a_cluster_all_but_init_take_a_runs_name() -> None:
    block = (ROOT / "README.md").read_text().split("## On your cluster")[1].split("```")[1]
    verbs = set(re.findall(r"^orchestrator (\w+)", block, re.MULTILINE))
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    with_a_name = {verb for verb in verbs if "name" in {parameter.name for parameter in commands[verb].params}}
    assert verbs - with_a_name == {"init"}


def test_figures_are_kept_with_the_machine_that_they_are_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = runpy.run_path(str(ROOT / "bench/figures.py"))
    monkeypatch.setitem(figures["save"].__globals__, "OWN", tmp_path / "bench" / "out")
    monkeypatch.setitem(figures["save"].__globals__, "FOLDER", tmp_path / "bench")
    (tmp_path / "bench").mkdir()
    for name in ("tick", "update"):
        figures["save"](name, ("slots", "s"), [(1, 0.5)])
    machines = figures["measured_on"](tmp_path / "bench" / "out")
    assert sorted(machines) == ["tick", "update"]
    assert " cores, 20" in machines["tick"]
    assert figures["measured_on"](tmp_path) == {}
