"""All that the doctors and the page check, by one table: facts → what is found, and how bad it is.

`fixtures/checks.jsonl` begins with facts of a place (a probe, a laptop, a page, a mirror) where all is well. Each row
changes some of them, by dotted names, and says which findings are then not ok; `says`: names and numbers that stand in
them; `recommends`: what `orchestrator doctor` would write into the config.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from anchorleg.findings import Finding, Level, examine, findings_lines, problems_of, show_findings, total
from orchestrator.config import parse_config
from orchestrator.doctor import checks as of_place
from orchestrator.doctor import probechecks as of_probe
from orchestrator.doctor.checks import LoginFacts
from orchestrator.doctor.probing import ProbeResult
from orchestrator.doctor.visit import recommended
from orchestrator.screens.runview import RunView
from syncd import doctor as of_laptop
from syncd.laptop.status import MirrorView
from viewer import troubles as of_page

ROWS = [json.loads(line) for line in (Path(__file__).parents[1] / "fixtures/checks.jsonl").read_text().splitlines()]
BASES = {row["base"]: row["facts"] for row in ROWS if "base" in row}
CASES = [row for row in ROWS if "of" in row]


def place(facts: dict[str, Any]) -> LoginFacts:
    return LoginFacts.model_validate(facts | {"config": parse_config(facts["config"], "here")})


def probed(facts: dict[str, Any]) -> of_probe.Probed:
    config = parse_config(facts["config"], "here")
    return of_probe.Probed(config, facts["executor"], ProbeResult(**facts["result"]))


def page(facts: dict[str, Any]) -> of_page.PageFacts:
    return of_page.PageFacts(RunView.model_validate(facts["view"]), facts["now"])


#: What a row is of → its checks, and its facts as these take them.
LISTS: dict[str, tuple[Any, Callable[[dict[str, Any]], Any]]] = {
    "place": (of_place.CHECKS, place),
    "probe": (of_probe.CHECKS, probed),
    "laptop": (of_laptop.CHECKS, of_laptop.LaptopFacts.model_validate),
    "page": (of_page.CHECKS, page),
    "mirror": (of_page.MIRROR_CHECKS, MirrorView.model_validate),
}


def facts_of(case: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = copy.deepcopy(BASES[case["of"]])
    for dotted, value in case["facts"].items():
        *above, last = dotted.split(".")
        at: Any = facts
        for name in above:
            at = at[int(name)] if isinstance(at, list) else at.setdefault(name, {})
        at[last] = value
    return facts


def found_in(case: dict[str, Any]) -> tuple[Finding, ...]:
    checks, read = LISTS[case["of"]]
    return examine(checks, read(facts_of(case)))


def levels(findings: tuple[Finding, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in findings:
        found.setdefault(finding.check, []).append(finding.level.value)
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['of']} {json.dumps(case['facts'])[:70]}")
def test_what_is_found(case: dict[str, Any]) -> None:
    findings = found_in(case)
    wanted = {check: [told] if isinstance(told, str) else told for check, told in case["finds"].items()}
    told = levels(findings)
    assert {check: all_ for check, all_ in told.items() if check in wanted or set(all_) != {Level.OK}} == wanted
    if case["of"] not in {"page", "mirror"}:  # which shows both apart
        assert [one.found for one in findings if one.advice and one.found.endswith(".")] == []
    assert [one.advice for one in findings if one.advice != one.advice.strip()] == []
    words = " ".join(f"{one.found} {one.advice}" for one in findings if one.check in wanted)
    assert [said for said in case.get("says", ()) if said not in words] == []
    if "recommends" in case:
        assert recommended(findings) == case["recommends"]


REPORT: dict[str, Any] = BASES["probe"]["result"]["report"]
ODD = st.none() | st.integers() | st.text() | st.just({})


@given(st.dictionaries(st.sampled_from(sorted({*REPORT} - {"started_at"})), ODD))
def test_a_report_with_holes_is_still_judged(changed: dict[str, Any]) -> None:
    case = {"of": "probe", "facts": {f"result.report.{name}": value for name, value in changed.items()}}
    found_in(case)


def test_every_check_has_a_row() -> None:
    for of, (checks, _) in LISTS.items():
        named = {check for case in CASES if case["of"] == of for check in (*case["finds"], *levels(found_in(case)))}
        silent = {check.name for check in checks} - named
        assert silent - {"actions"} == set(), of


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("of", ["place", "laptop"])
def test_a_table_fits_its_screen_and_loses_no_word(of: str, width: int) -> None:
    findings = tuple(one for case in CASES if case["of"] == of for one in found_in(case) if one.level is not Level.OK)
    screen = io.StringIO()
    show_findings(findings, Console(file=screen, width=width, force_terminal=True, color_system=None))
    assert all(len(line.rstrip()) <= width for line in screen.getvalue().splitlines())
    shown = screen.getvalue().split()
    for finding in findings:
        for word in [*finding.found.split(), *finding.advice.split()[1:]]:  # the advice begins a sentence
            assert word in shown


def test_a_pipe_gets_one_line_a_finding_that_begins_with_its_level(capsys: pytest.CaptureFixture[str]) -> None:
    findings = found_in({"of": "place", "facts": {"slurm.partitions": []}})
    show_findings(findings, Console(force_terminal=False))
    lines = capsys.readouterr().out.splitlines()
    assert lines == findings_lines(findings)
    assert any(line.startswith('problem: partition: "gpu" does not exist. Set slurm.partition') for line in lines)
    assert total(findings) == f"{len(lines) - 1} ok, 1 problem"
    assert problems_of(findings) == ["partition"]


def test_what_another_machine_said_cannot_move_the_cursor() -> None:
    assert Finding(check="x", level=Level.OK, found="a\x1b[2Jb\r\nc").found == r"a\x1b[2Jb  c"
