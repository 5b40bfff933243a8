"""Config files as people write them: JSON and YAML of one meaning, and one sentence for what is neither."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import refused

from orchestrator.config import load_config
from orchestrator.errors import ConfigError
from trainer.config.read import read_document, read_section
from trainer.errors import ConfigError as TrainerConfigError

QUOTE = re.compile(r"U\+(2018|201C|00A0)")


def a_yaml(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def value_of(folder: Path, text: str) -> Any:
    return read_document(a_yaml(folder, f"at: {text}\n"))["at"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4:00:00", "4:00:00"),  # 14400 by YAML 1.1
        ("on", "on"),
        ("no", "no"),
        ("true", True),
        ("3e-4", 3e-4),  # a text by YAML 1.1
        ("1.5", 1.5),
        ("-7", -7),
        ("1_000", "1_000"),
        ("2026-11-24", "2026-11-24"),  # a date by YAML 1.1
        (".inf", ".inf"),  # no number that JSON has
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("", None),
        ("~", None),
        ("[1, two]", [1, "two"]),
        ("{a: {b: 1}}", {"a": {"b": 1}}),
        ("|\n  one\n  two", "one\ntwo\n"),
    ],
)
def test_a_value_means_what_yaml_1_2_says(tmp_path: Path, text: str, value: Any) -> None:
    found = value_of(tmp_path, text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "text", "wrong", "fields"),
    [
        ("run.yaml", "a: 1\nb: 2\na: 3", "document.twice", {"name": "a"}),
        ("run.json", '{"a": 1, "a": 1}', "document.twice", {"name": "a"}),
        ("run.yaml", "a: [1\nb: 2", "document.no-yaml", {"why": re.compile("line 2, column 2")}),
        ("run.yaml", "a: 1\n---\nb: 2", "document.no-yaml", {}),
        ("run.yaml", "a: !!python/object/apply:os.system [ls]", "document.no-yaml", {}),
        ("run.yaml", "[a]: 1", "document.no-yaml", {}),
        ("run.yaml", "a: \x01", "document.no-yaml", {}),
        ("run.yaml", "- 1", "document.no-mapping", {}),
        ("run.yaml", "", "document.no-mapping", {}),
        ("run.yaml", "[" * 100_000, "document.no-config", {}),
        ("run.yaml", f"a: {'9' * 5000}", "document.no-config", {}),
    ],
    ids=range(11),
)
def test_what_cannot_be_used_is_one_sentence(
    tmp_path: Path, name: str, text: str | bytes, wrong: str, fields: dict[str, Any]
) -> None:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with refused(wrong, **fields) as caught:
        read_document(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("name", ["run.yaml", "run.json"])
def test_what_editors_of_other_systems_save_is_read(tmp_path: Path, encoding: str, name: str) -> None:
    path = tmp_path / name
    text = '{\n "run_name": "one",\n "notify": ["echo", "Gr\u00fc\u00dfe"]\n}\n' if name.endswith("json") else SAVED
    path.write_bytes(text.replace("\n", "\r\n").encode(encoding))
    assert read_document(path) == {"run_name": "one", "notify": ["echo", "Gr\u00fc\u00dfe"]}


SAVED = "run_name: one\nnotify:\n- echo\n- Gr\u00fc\u00dfe\n"


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn", "Co"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(WORDS.filter(lambda word: len(word) < 128), VALUES, max_size=4))
def test_json_is_read_as_yaml_with_the_same_meaning(
    tmp_path_factory: pytest.TempPathFactory, value: dict[str, Any]
) -> None:
    assert read_document(a_yaml(tmp_path_factory.getbasetemp(), json.dumps(value, ensure_ascii=False))) == value


def test_both_programs_read_one_file_and_know_its_fields(tmp_path: Path) -> None:
    text = "run_name: film\nslurm:\n  time_limit: 4:00:00\ntraining:\n  preset: tiny\n  learning_rate: 1e-4\n"
    path = a_yaml(tmp_path, text)

    config = load_config(path, {"slots": 2})

    assert (config.run_name, config.slurm.time_limit, config.slots) == ("film", 4 * 3600, 2)
    asked = read_section(path, None, [])
    assert (asked.run_name, asked.training.algorithm.model_dump()["learning_rate"]) == ("film", 1e-4)


def test_a_field_that_nobody_knows_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'run\.yaml: slurm\.partitoin: .*did you mean "partition"'):
        load_config(a_yaml(tmp_path, "slurm:\n  partitoin: gpu\n"))
    with pytest.raises(ConfigError, match=r"run\.yaml: not valid YAML: .*\.$"):
        load_config(a_yaml(tmp_path, "a: }"))
    with refused("config.unknown-field", field="batchsize", where=re.compile("run.yaml$")):
        read_section(a_yaml(tmp_path, "batchsize: 3\n"), None, [])


def test_what_was_typed_is_not_told_as_the_files(tmp_path: Path) -> None:
    path = a_yaml(tmp_path, "training:\n  gamma: 2\n")
    with pytest.raises(TrainerConfigError) as caught:
        read_section(path, None, ["training.tau=0", "env.horizon=0"])
    told = {line.split(": ")[1]: line.split(": ")[0] for line in str(caught.value).splitlines()}
    assert told == {"gamma": str(path), "tau": "the command line", "env.horizon": "the command line"}


def test_numbers_of_slots_may_be_names(tmp_path: Path) -> None:
    config = load_config(a_yaml(tmp_path, "slots: 2\nslot_overrides:\n  1:\n    seed: 9\n"))
    assert config.training_of(1).model_dump(exclude_unset=True)["seed"] == 9


def test_many_names_are_looked_at_once_each(tmp_path: Path) -> None:
    """By pairs these would take hours."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps({f"n{number}": 0 for number in range(300_000)}))
    assert len(read_document(path)) == 300_000


@pytest.mark.parametrize(
    ("name", "data", "wrong", "fields"),
    [
        ("run.json", b'{\n "run_name": "Gr\xfc\xdfe"}', "document.no-utf8", {"line": 2}),
        ("run.yaml", b"a: 1\nb: Gr\xfc\xdfe", "document.no-utf8", {"line": 2}),
        ("run.json", "{\u201crun_name\u201d: 1}".encode(), "document.no-json", {"column": 2, "why": QUOTE}),
        ("run.json", '{"a": \u2018x\u2019}'.encode(), "document.no-json", {"column": 7, "why": QUOTE}),
        ("run.json", '{\n\u00a0"a": 1}'.encode(), "document.no-json", {"line": 2, "why": QUOTE}),
        ("run.yaml", "a: \u201cgpu\u201d".encode(), "document.foreign-letter", {"column": 4, "why": QUOTE}),
        ("run.yaml", "b: 1\n\u00a0a: 2".encode(), "document.foreign-letter", {"line": 2, "why": QUOTE}),
        ("run.yaml", "a: gpu\u00a0".encode(), "document.foreign-letter", {"column": 4, "why": QUOTE}),
    ],
)
def test_what_they_put_into_it_is_told_with_what_to_do(
    tmp_path: Path, name: str, data: bytes, wrong: str, fields: dict[str, Any]
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with refused(wrong, **fields):
        read_document(path)
