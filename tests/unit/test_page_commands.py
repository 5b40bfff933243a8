"""Every command of ours that a page shows exists; so does what the tables on the older guides call "here". `--help`."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import typer
from pydantic import ValidationError
from typer.testing import CliRunner

from orchestrator.cli import app as orchestrator
from orchestrator.config import RunConfig, load_config
from syncd import remote as settings
from syncd.cli import app as syncd
from trainer.cli import app as trainer
from trainer.config.algorithms import Mtsac
from trainer.config.network import Network
from trainer.config.read import read_section
from trainer.config.section import PRESETS, TrainingSection, resolve
from trainer.config.suites import Metaworld
from trainer.config.training import Training
from viewer.cli import app as viewer
from viewer.cli import export_app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), ROOT / "examples/README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: What the older guides have, and what is here.
GUIDES = ROOT / "docs/guides.md"
PROGRAMS = {
    "orchestrator": orchestrator,
    "trainer": trainer,
    "syncd": syncd,
    "viewer": viewer,
    "viewer export": export_app,
}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
#: Programs of others, which stand in the column "here" as they stand in the guides.
OTHERS = {"cat", "nvidia-smi", "pip", "squeue", "ssh", "ssh-copy-id", "ssh-keygen", "tail", "tensorboard", "wandb"}


def rows() -> Iterator[dict[str, str]]:
    """Cells by the name of their column, of the tables that have a column "here"."""
    names: list[str] = []
    for line in GUIDES.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            names = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not names:
            names = cells
        elif "here" in names and set(line) - set("|- "):
            assert len(cells) == len(names), line
            yield dict(zip(names, cells, strict=True))


def spans(text: str) -> list[str]:
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]


def ours() -> list[str]:
    """All that stands as code in the columns "here"."""
    return list(dict.fromkeys(span for row in rows() for span in spans(row["here"])))


def shown(text: str) -> Iterator[str]:
    """Command lines of code blocks and sentences, without prompt, remark and what follows in a pipe."""
    blocks = [block for language, block in FENCE.findall(text) if language in {"", "bash"}]
    lines = [
        re.sub(r"^(?:\w*\$|&&) ", "", line.strip())
        for block in blocks
        for line in re.sub(r"\\\n", "", block).splitlines()
    ]
    for line in (*lines, *spans(FENCE.sub("", text))):
        command = re.split(r" +(?:#|\||&+|>+|2>)(?: |$)", line)[0]
        words = command.split()
        has_verb = len(words) > 1 and words[0] in PROGRAMS and re.fullmatch(r"[a-z][a-z-]*", words[1])
        if has_verb or words[:1] in (["make"], ["pip"], ["python"], ["viewer"]):
            yield command


def check_other(program: str, words: list[str]) -> None:
    """Of what is not our program: the target of `make`, the extra, or the script, is there."""
    makefile = (ROOT / "Makefile").read_text()
    for word in words:
        assert program != "make" or "=" in word or re.search(rf"^{word}:", makefile, re.MULTILINE), word
        assert program != "pip" or {*re.findall(r"\w+", word.partition("[")[2])} <= {*EXTRAS}, word
        assert program != "python" or not re.match("(bench|docs|tests)/", word) or (ROOT / word).is_file(), word


def command_of(program: str, words: list[str]) -> tuple[Any, list[str]]:
    """The verb, and the words after it. Errors: KeyError."""
    command: Any = typer.main.get_command(PROGRAMS[program])
    while words and hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    return command, words


def check_command(span: str) -> None:
    program, *words = shlex.split(span)
    if program not in PROGRAMS:
        check_other(program, words)
        return
    if span.startswith("viewer export "):
        program, words = "viewer export", words[1:]
    command, rest = command_of(program, words)
    options = {name: option for option in command.params if option.param_type_name == "option" for name in option.opts}
    arguments = [word for word in command.params if word.param_type_name == "argument"]
    typed = 0
    given: dict[str, list[str]] = {}
    while rest:
        word = rest.pop(0)
        if word.startswith("-"):
            assert word in options, f"{span}: there is no {word}"
            if not getattr(options[word], "is_flag", False):
                given.setdefault(word, []).extend([rest.pop(0)] if rest else [])
        else:
            typed += 1
    assert typed <= sum(100 if argument.nargs == -1 else 1 for argument in arguments), f"{span}: too many words"
    file = next((ROOT / one for one in given.get("--config", []) if "/" in one), None)
    if program == "orchestrator" and file is not None:
        load_config(file)
    named = "--config" in given and file is None  # a file of the reader's
    if program == "trainer" and words[0] == "train" and not named:
        read_section(file, next(iter(given.get("--preset", [])), None), given.get("--set", []))


def check_field(span: str) -> None:
    model: Any = RunConfig
    for name in span.split("."):
        fields = model.model_fields
        if model is TrainingSection:  # by its section, or by its short name
            fields = {**Network.model_fields, **Mtsac.model_fields, **Metaworld.model_fields, **Training.model_fields}
        assert name in fields, f"{span}: there is no such field"
        if model is TrainingSection and name in {"env", "algorithm"}:  # those that a config has which names none
            model = {"env": Metaworld, "algorithm": Mtsac}[name]
            continue
        model = next((kind for kind in kinds_of(fields[name].annotation) if hasattr(kind, "model_fields")), None)


def kinds_of(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__args__", ()) or (annotation,)


def check(span: str) -> None:
    """Errors: AssertionError, KeyError or ValidationError where `span` is not what the page says."""
    first = span.split(maxsplit=1)[0]
    if first in PROGRAMS:
        check_command(span)
    elif first in OTHERS:
        if "<run_dir>" in span:
            assert re.search(r"<run_dir>/logs/ +slurm-<id>\.out", (ROOT / "docs/architecture.md").read_text())
    elif span.startswith('"'):
        value = json.loads("{" + span + "}")
        try:
            RunConfig.model_validate(value)
        except ValidationError:
            resolve(TrainingSection.model_validate(value))
    elif re.fullmatch(r"[A-Z_]+", span):
        known = {settings.USER_VARIABLE, settings.HOST_VARIABLE, settings.PATH_VARIABLE}
        source = [path.read_text() for path in (ROOT / "trainer").rglob("*.py")]
        assert span in known or any(f'"{span}"' in text for text in source), f"{span}: nothing reads this variable"
    elif "/" in span:
        assert (ROOT / span).exists(), f"{span}: there is no such file"
    else:
        check_field(span)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_of_ours_that_a_page_shows_exists(page: Path) -> None:
    wrong = []
    for line in dict.fromkeys(shown(page.read_text(encoding="utf-8"))):
        try:
            check_command(line)
        except (AssertionError, KeyError, ValueError) as error:
            wrong.append(f"{line}: {error}")
    assert wrong == []


@pytest.mark.parametrize("span", ours())
def test_what_a_table_calls_here_exists(span: str) -> None:
    check(span)


@pytest.mark.parametrize("row", [row for row in rows() if spans(row.get("default here", ""))], ids=str)
def test_the_defaults_are_ours(row: dict[str, str]) -> None:
    (field,) = spans(row["here"])
    (value,) = spans(row["default here"])
    config = RunConfig().model_dump(mode="json")
    training = resolve(TrainingSection()).model_dump(mode="json")
    training |= {**training["env"], **training["algorithm"], **training["network"]}
    config["training"] = {**training, "num_envs": None}  # left out: the benchmark's number of tasks
    at: Any = config
    for name in field.split("."):
        at = at[name]
    assert json.loads(value) == at


def test_each_of_the_guides_has_its_table() -> None:
    assert GUIDES.read_text().count("| here |") == 4
    assert all(row["why it differs"] for row in rows() if "default here" in row)


#: What `tests/support/typed_pages.txt` does not type → the file with the test that does; or why none does.
ELSEWHERE = {
    "make*": "what runs the tests, .ci/run and the figures of bench/",
    "pip install*": "tests/integration/test_wheel.py",
    "python bench/*": "tests/integration/test_benches.py",
    "python docs/errors.py": "tests/unit/test_errors.py",
    "python": "a word, not a command",
    "orchestrator start --config ppo_sb3.json": "tests/integration/test_frameworks.py",
    "* examples/video.yaml": "tests/real/test_examples_slurm.py",
    "orchestrator doctor --config video.yaml": "tests/real/test_examples_slurm.py",
    "orchestrator start --probe-first": "tests/real/test_first_jobs_slurm.py",
    "orchestrator start NAME --renew-code": "tests/integration/test_own_programs.py",
    "orchestrator tick": "tests/integration/test_relay_owners.py",
    "trainer train * --ranks 4": "tests/integration/test_ranks.py",
    "trainer demos record * --episodes 200": "typed with 6",
    "trainer wandb*": "tests/integration/test_wandb_sync.py",
    "syncd gate": "tests/real/test_gate_ssh.py",
    "syncd serve": "tests/real/test_live_ssh.py",
    "syncd install": "tests/real/test_agents.py",
    "syncd uninstall": "tests/real/test_agents.py",
    "syncd agent-status": "tests/real/test_agents.py",
    "syncd * /group/*": "tests/real/test_own_accounts.py",
    "syncd setup cluster:/group/*": "tests/real/test_own_accounts.py",
    "orchestrator * --config actors.json*": "tests/real/test_own_accounts.py",
}


def test_each_command_of_the_pages_is_typed_by_a_test() -> None:
    tutorial = (
        (ROOT / "docs/laptops.md").read_text().split("\n## Share with accounts")[0]
    )  # tests/real/test_tutorial.py
    lines = (ROOT / "tests/support/typed_pages.txt").read_text() + tutorial
    typed = [{*shlex.split(line)} for line in re.findall(r"^\S+\$ (.+?)(?:  .+)?$", lines, re.MULTILINE)]
    missing, used = [], set()
    for line in dict.fromkeys(line for page in PAGES for line in shown(page.read_text(encoding="utf-8"))):
        if not any({*shlex.split(line)} <= words for words in typed):
            found = [pattern for pattern in ELSEWHERE if fnmatch(line, pattern)]
            used |= {*found}
            missing += [] if found else [line]
    assert (missing, {*ELSEWHERE} - used) == ([], set())
    assert [at for at in ELSEWHERE.values() if at.startswith("tests/") and not (ROOT / at).is_file()] == []


#: What programs start, and what makes files of ours.
PLUMBING = {"tick", "render", "schema", "agent-status", "gate", "serve", "run-agent"}
METAVARS = {
    "RUN", "SLOT", "FILE", "DIR", "HOST", "REMOTE", "NAME", "POLICY", "PRESET", "PARTITION", "FIELD=VALUE", "TASK",
    "N", "CAMERA", "CONTRIBUTOR", "FINGERPRINT", "HOST:DIR", "PIXELS", "PORT", "PRICE", "PRIORITY", "RATE", "SECONDS",
    "SEED", "SIZE", "STEP", "TIME", "TEXT", "[auto|cpu|cuda|mps]", "[auto|slurm|local]", "[foreground|daemon]",
}  # fmt: skip


def walked(words: list[str], command: Any) -> Iterator[tuple[str, Any]]:
    yield " ".join(words), command
    for name, inner in getattr(command, "commands", {}).items():
        yield from walked([*words, name], inner)


APPS = {**PROGRAMS, "viewer": viewer, "viewer-export": export_app}
COMMANDS = {path: it for name, app in APPS.items() for path, it in walked([name], typer.main.get_command(app))}


@pytest.mark.parametrize("path", COMMANDS)
def test_help_has_a_line_for_each_command_that_people_type_and_a_word_for_each_value(path: str) -> None:
    command, (program, *words) = COMMANDS[path], path.split()
    done = CliRunner().invoke(APPS[program], [*words, "--help"], env={"COLUMNS": "80"})
    assert (done.exit_code, max(map(len, done.stdout.splitlines())) <= 80) == (0, True)
    for param in command.params:
        if getattr(param, "hidden", False) or param.name in {"install_completion", "show_completion"}:
            assert param.opts[0] not in done.stdout
        else:
            assert (bool(param.help), param.metavar in METAVARS or param.is_flag) == (True, True), param.name
    rows = dict(re.findall(r"^  (\S+) +(\S.*)$", done.stdout, re.MULTILINE))
    for name, inner in getattr(command, "commands", {}).items():
        told = inner.get_short_help_str(200)
        assert (inner.hidden, rows.get(name)) == ((True, None) if name in PLUMBING else (False, told))
        assert name in PLUMBING or (len(told) <= 55 and f"\n{inner.rich_help_panel}:\n" in done.stdout)


def test_presets_are_listed() -> None:
    said = [CliRunner().invoke(trainer, ["presets", *words]).stdout for words in ([], ["--json"])]
    assert [line.split("\t")[0] for line in said[0].splitlines()] == list(json.loads(said[1])) == list(PRESETS)
