"""The Dockerfile and the Apptainer definition make one image, and a builder finds all that they name."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from daemons import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "containers"
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
DEFINITION = (FOLDER / "anchorleg.def").read_text()
INSTALL = FOLDER / "install.sh"


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


def test_both_begin_with_the_same_image_of_our_range() -> None:
    [base] = lines_of(DOCKERFILE, "FROM")
    assert lines_of(DEFINITION, "From:") == [base]
    assert lines_of(DEFINITION, "Bootstrap:") == ["docker"]
    version = re.fullmatch(r"python:3\.(\d+)-slim-[a-z]+", base)
    assert version is not None, "an image of Docker Hub by its short name"
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    least, beyond = re.findall(r"3\.(\d+)", wanted)
    assert int(least) <= int(version[1]) < int(beyond)


def test_both_take_the_same_arguments_with_the_same_defaults() -> None:
    assert part("arguments") == lines_of(DOCKERFILE, "ARG") == ["VARIANT=cuda", "WHEELS=none"]


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


def test_both_put_the_same_python_first() -> None:
    [docker] = [line for line in lines_of(DOCKERFILE, "ENV") if line.startswith("PATH=")]
    assert f"export {docker}" in part("environment")
    assert docker.startswith("PATH=/opt/venv/bin:")


def test_the_image_does_not_run_as_root() -> None:
    last = [line for line in DOCKERFILE.splitlines() if line.startswith(("RUN", "USER", "COPY"))][-1]
    assert last == "USER anchorleg"


def test_the_script_refuses_what_it_does_not_know() -> None:
    for words, said in (
        (["system", "gpu"], "VARIANT is 'gpu'; use cpu or cuda"),
        (["python"], "VARIANT is ''; use cpu or cuda"),
        (["everything", "cpu"], "'everything' is none of system, python and packages"),
    ):
        done = subprocess.run(
            ["sh", str(INSTALL), *words], capture_output=True, text=True, check=False, timeout=PATIENCE_S, cwd="/"
        )
        assert done.returncode == 2
        assert said in done.stderr


def test_no_server_is_named() -> None:
    texts = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert [name for name, text in texts.items() if "://" in text] == []
