"""The Dockerfile and the Apptainer definition make one image, and a builder finds all that they name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "containers"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
DEFINITION = (FOLDER / "anchorleg.def").read_text()


def lines_of(text: str, word: str) -> list[str]:
    """What stands behind `word` at the beginning of a line."""
    return [line.removeprefix(word).strip() for line in text.splitlines() if line.startswith(f"{word} ")]


def part(name: str) -> list[str]:
    """The lines of a section of the definition."""
    body = DEFINITION.partition(f"\n%{name}\n")[2].partition("\n%")[0]
    return [line.strip() for line in body.splitlines() if line.strip()]


def docker_copies() -> dict[str, str]:
    """Source → place in the image. The Dockerfile works in /opt/anchorleg."""
    found = {}
    for words in map(str.split, lines_of(DOCKERFILE, "COPY")):
        *sources, target = words
        for source in sources:
            found[source] = f"/opt/anchorleg/{Path(source).name if target == './' else target}"
    return found


def test_both_install_by_the_same_script_in_the_same_order() -> None:
    docker = [run for run in lines_of(DOCKERFILE, "RUN") if "install.sh" in run]
    apptainer = [re.sub(r"\{\{ (\w+) \}\}", r"$\1", run) for run in part("post") if "install.sh" in run]
    assert docker == apptainer
    assert [run.split()[2] for run in docker] == ["system", "python", "packages"]
    for other in ("apt-get", "pip "):
        assert other not in DOCKERFILE + DEFINITION, "what is installed stands in install.sh"


def test_both_bring_the_same_files_and_these_are_there() -> None:
    copies = docker_copies()
    assert dict(line.split() for line in part("files")) == copies
    assert all((ROOT / source).exists() for source in copies)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = {
        *project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"],
        "templates",
        project["project"]["readme"],
    }
    assert needed | {"pyproject.toml", "constraints.txt", "LICENSE"} <= set(copies)


def test_the_builder_is_sent_what_is_copied_and_no_more() -> None:
    ignored, *sent = [
        line for line in (FOLDER / "Dockerfile.dockerignore").read_text().splitlines() if not line.startswith("#")
    ]
    assert ignored == "*"
    assert {line[1:] for line in sent if line.startswith("!")} == {source.split("/")[0] for source in docker_copies()}


def test_the_image_does_not_run_as_root() -> None:
    last = [line for line in DOCKERFILE.splitlines() if line.startswith(("RUN", "USER", "COPY"))][-1]
    assert last == "USER anchorleg"


def test_no_server_is_named() -> None:
    texts = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert [name for name, text in texts.items() if "://" in text] == []
