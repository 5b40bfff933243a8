"""The rules of the house: doors between the packages, sizes, docstrings, and what nobody may use."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
from daemons import PATIENCE_S
from each_file import each_of

ROOT = Path(__file__).parents[2]
PACKAGES = ("anchorleg", "orchestrator", "trainer", "syncd", "viewer")
#: package → the modules of other packages that it may import.
DOORS = {
    "anchorleg": set(),
    "orchestrator": {
        *(f"trainer.config.{name}" for name in ("read", "section", "training", "wandb")),
    },
    "trainer": {"syncd.store", "syncd.outbox", "syncd.streamed"},
    "syncd": set(),
    # It reads what the others show of themselves, and nobody imports it.
    "viewer": {
        *(f"orchestrator.run.{name}" for name in ("ledger", "rundir")),
        *(
            f"orchestrator.screens.{name}"
            for name in ("board", "cells", "goodput", "jobtimes", "reading", "runview", "status", "timeline")
        ),
        "orchestrator.commands.options",
        "orchestrator.errors",
        # Another machine's viewer: started over there as syncd's own server is, and tried again as that is.
        *(f"syncd.{name}" for name in ("access.survey", "errors", "laptop.backoff", "remote")),
        *(f"syncd.{name}" for name in ("transports.openssh", "wire.streams")),
        "syncd.laptop.status",
        "syncd.laptop.views",
        "syncd.shared.counts",
        "syncd.store",
        "trainer.history.read",
    },
}
#: The package that all others stand on: the standard library alone.
GROUND = "anchorleg"
#: The folders of each package, and the files beside them, from top to bottom: each knows only those below it.
FLOORS = {
    "anchorleg": """
        cli job, live, findings places rollback, disks files output signals temporary, errors, words""",
    "orchestrator": """
        __main__, cli, commands, doctor, hosts, controller, screens init, observe, run, configwarnings,
        decisions reference, config packing shim,
        executors experiments failover fields sections,
        disk integrations jobside processes notation, errors""",
    "trainer": """
        __main__, cli, commands, tuning, actors, training, demos, showing, live, exporting, wandb, evaluation, sharing,
        checkpoints, algorithms, buffers, nets, envs, config, history, machine, state streams, errors""",
    "syncd": """
        __main__, cli, commands, doctor, background, access laptop, outbox streamed transports, store wire, remote,
        shared, errors""",
    "viewer": """
        __main__, cli, showing, forward, lines export, server, live sources, learning timeline troubles,
        curves pacing, model, errors""",
}
#: What the viewer may use of `anchorleg.files`: to lead a browser, and to write what `export` is asked for.
WRITES = {"viewer.export", "viewer.server.sockets"}
#: What serves a page needs `websockets`, and nothing else of the viewer does.
SERVES = {"viewer.server.http", "viewer.server.serve", "viewer.server.watchers"}
#: Which agents it wants to see, it says by `anchorleg.live.wanted.Asking`, in one place.
ASKS = {"viewer.live.hub"}
#: Names of `anchorleg.files`, `os` and `pathlib` by which something is written.
WRITING = {
    "write_bytes", "write_json", "write_text", "append_lines", "create_exclusive", "publish_folder", "remove_folder",
    "rename", "replace_file", "symlink_to", "touch", "rmtree", "rmdir",
}  # fmt: skip
#: What the decisions of the orchestrator may not know beside what is above them: they know no world.
WORLDS = {"orchestrator.disk", "orchestrator.processes", "anchorleg.files"}
#: Where time, chance and the outside come from: handed to decisions as values, never fetched by them.
OUTSIDE = {"os", "time", "datetime", "random", "secrets", "subprocess", "socket", "shutil", "tempfile", "threading"}
#: What a login node has no business to load.
HEAVY = {"torch", "numpy", "metaworld", "mujoco", "gymnasium", "scipy", "tensorboard"}
#: What each file of a folder calls its own, and the protocol that says so.
BY_CONTRACT = {"Suite", "Encoder"}
#: Base classes whose docstrings are those of what overrides them.
SAY_WHAT_IS_OVERRIDDEN = {
    "Algorithm", "AlgorithmSettings", "Distribution", "EnvSettings", "Feature", "InflowSource",
    "OffPolicySettings", "OnPolicySettings", "PictureSettings", "PlainOffPolicy", "Storage",
}  # fmt: skip
#: Where protocols stand whose methods need no docstring again where something of `trainer/envs` has them.
PROTOCOLS_OF_ENVS = ("trainer/envs/suite.py", "trainer/envs/collector.py")
#: Beside the algorithms, for all of them; and what every encoder offers.
SHARED_BY_ALL = {"base", "common"}
#: Films and the probe of pictures draw Meta-World's own scenes.
OF_METAWORLD = {"trainer.showing.play", "trainer.showing.taskprobe"}
#: Functions outside of `trainer/config` and `trainer/training` that take a `Training`.
TAKING_TRAINING = 49
#: Longer than this and one noun has become two; but for what is one thing.
MAX_LINES = 400
LONGER = {"orchestrator/controller.py": 410, "syncd/wire/protocol.py": 440}
FORBIDDEN = {
    "shell=True": "commands are lists",
    "pickle": "nothing from outside is ever unpickled",
    "marshal": "as pickle",
    "torch.load": "it unpickles; safetensors does not",
    "torch.save": "it pickles",
    "allow_pickle": "as pickle",
    "eval(": "text is not code",
    "exec(": "text is not code",
    "os.system": "commands are lists",
}
#: What reads files of weights that others published, where they are what `torch.save` wrote.
READS_WEIGHTS = "trainer.nets.weights"
#: `except Exception: pass` and its kin hide what should have been said.
BROAD = {"Exception", "BaseException"}


def modules_of(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


#: What programs of one's own import, each in the environment of its framework.
INTEGRATIONS = sorted((ROOT / "orchestrator" / "integrations").glob("[!_]*.py"))
EVERY_MODULE = [path for package in PACKAGES for path in modules_of(package)]


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports_of(path: Path) -> set[str]:
    """Every module that `path` imports, anywhere in it. `from a import b` counts as `a.b` where that is a module."""
    found = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{shown(path)}: imports are absolute"
            module = node.module or ""
            for alias in node.names:
                inner = ROOT / Path(*module.split(".")) / alias.name
                is_module = inner.with_suffix(".py").exists() or inner.is_dir()
                found.add(f"{module}.{alias.name}" if is_module else module)
    return found


@pytest.mark.long
@each_of(EVERY_MODULE)
def test_packages_meet_at_their_doors_only(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    foreign = {name for name in imports_of(path) if name.split(".")[0] in set(PACKAGES) - {package, GROUND}}
    assert foreign <= DOORS[package]


def room_of(module: str) -> str:
    """Its folder; a file beside the folders of a package is a room of its own."""
    return ".".join(module.split(".")[:2])


def circles_in(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Groups of nodes that lead to each other and what lies between two such groups: all else is trimmed away."""
    left = {node: {to for to in tos if to != node} & set(arrows) for node, tos in arrows.items()}
    ends: set[str] = {""}
    while ends:
        ends = {node for node, tos in left.items() if not tos}
        ends |= set(left) - {to for tos in left.values() for to in tos}
        left = {node: tos - ends for node, tos in left.items() if node not in ends}
    return [sorted(left)] if left else []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_file_leads_back_to_itself(package: str) -> None:
    arrows = {name_of(path): imports_of(path) for path in modules_of(package)}
    assert circles_in(arrows) == []


def test_a_circle_is_found() -> None:
    assert circles_in({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a", "d"}, "e": set()}) == [["b", "c"]]
    assert circles_in({"a": {"b"}, "b": {"c"}, "c": set()}) == []


def loaded_after(imports: list[str]) -> set[str]:
    code = f"import json, sys\nfor name in {imports!r}:\n    __import__(name)\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_knows_only_those_below_it(package: str) -> None:
    floors = [floor.split() for floor in FLOORS[package].split(",")]
    height = {f"{package}.{room}": -number for number, floor in enumerate(floors) for room in floor}
    for path in modules_of(package):
        here = room_of(name_of(path))
        if here == package:
            continue  # its __init__ imports nothing
        assert here in height, f"{here} has no floor yet: say in FLOORS where it stands"
        known = {room_of(name) for name in imports_of(path) if name.startswith(f"{package}.")} - {here}
        assert {room for room in known if height[room] >= height[here]} == set(), shown(path)


def test_a_class_name_stands_in_one_place() -> None:
    """But the errors, of which each package has its own, the callbacks for the frameworks of others, and what a file of
    a folder must have by its contract.
    """
    places: dict[str, set[str]] = {}
    for path in EVERY_MODULE:
        if path.name != "errors.py" and path not in INTEGRATIONS:
            for node in ast.walk(tree_of(path)):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and node.name not in BY_CONTRACT:
                    places.setdefault(node.name, set()).add(shown(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_decisions_know_no_world() -> None:
    names = {name for path in (ROOT / "orchestrator/decisions").glob("*.py") for name in imports_of(path)}
    assert {name.split(".")[0] for name in names} & OUTSIDE == set()
    assert names & WORLDS == set()


@each_of(modules_of(GROUND))
def test_the_ground_is_the_standard_library_alone(path: Path) -> None:
    known = {GROUND, "typer"} if name_of(path) == "anchorleg.cli" else {GROUND}
    assert {name.split(".")[0] for name in imports_of(path)} <= set(sys.stdlib_module_names) | known


def test_what_a_group_reads_is_made_for_it() -> None:
    """`anchorleg.files.make_folder` follows the umask, which may close a group's folder to the group."""
    files = [*(ROOT / "syncd").rglob("*.py"), *(ROOT / "anchorleg" / "live").rglob("*.py")]
    assert [path for path in files if re.search(r"\bmake_folder\b", path.read_text())] == []


def test_a_login_node_loads_neither_torch_nor_numpy() -> None:
    paths = [path for path in (*modules_of("orchestrator"), *modules_of("syncd")) if path.name != "__main__.py"]
    paths = [path for path in paths if path not in INTEGRATIONS]
    modules = [name_of(path) for path in paths]
    assert not loaded_after([*modules, "trainer.config.section"]) & HEAVY


def test_who_trains_nothing_loads_no_settings_of_algorithms_and_suites() -> None:
    own_program = "import orchestrator.config as config; config.RunConfig(run_name='x', command=['true'])"
    asked = {"trainer.config.algorithms", "trainer.config.suites"}
    seen = subprocess.run(
        [sys.executable, "-c", f"{own_program}\nimport sys; print(*({asked!r} & set(sys.modules)))"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert seen.stdout.split() == []


def test_nobody_imports_the_integrations_and_they_know_the_jobs_side_alone() -> None:
    for path in EVERY_MODULE:
        ours = {name for name in imports_of(path) if name.split(".")[0] in PACKAGES}
        known = {name for name in ours if name.startswith("orchestrator.integrations")}
        assert ours - known <= {"anchorleg.job"} if path in INTEGRATIONS else known == set(), shown(path)


def test_nobody_imports_the_viewer_and_a_login_node_loads_little_for_it() -> None:
    for path in EVERY_MODULE:
        if path.relative_to(ROOT).parts[0] != "viewer":
            assert not {name for name in imports_of(path) if name.split(".")[0] == "viewer"}, shown(path)
    names = [name_of(path) for path in modules_of("viewer") if path.name != "__main__.py"]
    names = [name for name in names if name not in SERVES]
    assert not loaded_after(names) & (HEAVY | {"websockets", "playwright", "matplotlib", "paramiko"})


@each_of(modules_of("viewer"))
def test_the_viewer_asks_for_agents_in_one_place_and_starts_no_program(path: Path) -> None:
    names = {node.id for node in ast.walk(tree_of(path)) if isinstance(node, ast.Name)}
    names |= {
        alias.name for node in ast.walk(tree_of(path)) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert "RingWriter" not in names
    assert "Asking" not in names or name_of(path) in ASKS
    assert not imports_of(path) & {"subprocess", "tempfile"}


@each_of(modules_of("viewer"))
def test_the_viewer_writes_its_export_and_nothing_else(path: Path) -> None:
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    }
    assert not called & WRITING or name_of(path) in WRITES


def test_the_jobs_side_of_the_contract_is_the_standard_library_alone() -> None:
    loaded = loaded_after(
        [
            "anchorleg.job",
            "orchestrator.shim",
            "orchestrator.jobside",
            "orchestrator.integrations.checkpointer",
            "orchestrator.integrations.rng",
            "orchestrator.executors.supervisor",
            "orchestrator.doctor.probe",
        ]
    )
    ours = {name for name in loaded if name.split(".")[0] in PACKAGES}
    others = {name.split(".")[0] for name in loaded - loaded_after([])} - set(sys.stdlib_module_names) - set(PACKAGES)
    assert others == set()
    assert ours <= {
        "anchorleg",
        "anchorleg.disks",
        "anchorleg.files",
        "anchorleg.job",
        "anchorleg.rollback",
        "anchorleg.places",
        "anchorleg.signals",
        "anchorleg.temporary",
        "orchestrator",
        "orchestrator.jobside",
        "orchestrator.failover",
        "orchestrator.doctor",
        "orchestrator.doctor.probe",
        "orchestrator.executors",
        "orchestrator.executors.supervisor",
        "orchestrator.integrations",
        "orchestrator.integrations.checkpointer",
        "orchestrator.integrations.rng",
        "orchestrator.processes",
        "orchestrator.shim",
        "trainer",
        "trainer.machine",
        "trainer.machine.host",
    }


def test_the_config_of_the_training_needs_pydantic_alone() -> None:
    ours = {name for name in loaded_after(["trainer.config.section"]) if name.split(".")[0] in PACKAGES}
    assert {name.split(".")[0] for name in ours} == {"anchorleg", "trainer"}
    tops = {name.split(".")[0] for path in EVERY_MODULE for name in imports_of(path) if name_of(path) in ours}
    assert tops <= set(sys.stdlib_module_names) | {"pydantic", "pydantic_core", "anchorleg", "trainer"}


@each_of(modules_of("trainer"))
def test_algorithms_suites_and_encoders_are_known_by_name_alone(path: Path) -> None:
    """`trainer.config.find` loads them; what lies in one of their folders knows its own."""
    module = name_of(path)
    kinds = ("trainer.algorithms.", "trainer.envs.suites.", "trainer.nets.encoders.")
    named = {
        name
        for name in imports_of(path)
        for kind in kinds
        if name.startswith(kind) and name.removeprefix(kind).split(".")[0] not in SHARED_BY_ALL
    }
    own = {name for name in named if ".".join(name.split(".")[: 4 if "suites" in name else 3]) in module}
    assert named - own == (named if module in OF_METAWORLD else set())


@each_of(modules_of("trainer"))
def test_metaworlds_shapes_stand_below_metaworld(path: Path) -> None:
    words = set(re.findall(r"\b(OBS_DIM|ACT_DIM|MT50|MAX_HORIZON)\b", path.read_text(encoding="utf-8")))
    assert not words or "metaworld" in path.parts or path.parent.name == "config" or name_of(path) in OF_METAWORLD


def test_the_loop_of_a_training_knows_no_feature_and_none_knows_another() -> None:
    room, base = "trainer.training.features", "trainer.training.features.base"
    loop = ROOT / "trainer/training/loop.py"
    assert {name for name in imports_of(loop) if name.startswith(room)} == {base}
    assert len(loop.read_text(encoding="utf-8").splitlines()) <= 250
    for path in modules_of("trainer/training/features"):
        own = ".".join(name_of(path).split(".")[:4])
        others = {name for name in imports_of(path) if name.startswith(room) and not name.startswith(own)}
        assert others <= {base}, shown(path)


def test_ever_fewer_functions_outside_of_the_training_take_all_of_it() -> None:
    """Elsewhere a function takes its own section, or the numbers that it needs. What is left: lower it, never raise."""
    found = [
        f"{shown(path)}: {node.name}"
        for path in modules_of("trainer")
        if room_of(name_of(path)) not in {"trainer.config", "trainer.training"}
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef)
        for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if arg.annotation is not None and re.search(r"\bTraining\b", ast.unparse(arg.annotation))
    ]
    assert len(found) <= TAKING_TRAINING, found


@each_of(EVERY_MODULE)
def test_a_file_fits_in_a_head(path: Path) -> None:
    most = LONGER.get(str(path.relative_to(ROOT)), MAX_LINES)
    assert len(path.read_text(encoding="utf-8").splitlines()) <= most


def public_definitions(tree: ast.Module) -> list[tuple[str, ast.AST]]:
    """Public classes and functions of a module, and public methods of its public classes."""
    found: list[tuple[str, ast.AST]] = []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("_"):
            continue
        found.append((node.name, node))
        if isinstance(node, ast.ClassDef):
            found += [
                (f"{node.name}.{inner.name}", inner)
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_")
            ]
    return found


@each_of(EVERY_MODULE)
def test_every_public_name_says_what_it_is(path: Path) -> None:
    tree = tree_of(path)
    overloads = {"overload", "typing.overload"}
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    overriding = tuple(f"{node.name}." for node in classes if {*map(ast.unparse, node.bases)} & SAY_WHAT_IS_OVERRIDDEN)
    promised = tuple(
        f".{inner.name}"
        for of_protocols in PROTOCOLS_OF_ENVS
        for node in tree_of(ROOT / of_protocols).body
        if isinstance(node, ast.ClassDef) and "Protocol" in map(ast.unparse, node.bases)
        for inner in node.body
        if isinstance(inner, ast.FunctionDef) and name_of(path).startswith("trainer.envs.")
    )
    silent = [
        name
        for name, node in public_definitions(tree)
        if not ast.get_docstring(node)  # type: ignore[arg-type]
        and not name.startswith(overriding)
        and not name.endswith(promised)
        and not name.endswith(".forward")  # of a net: torch's
        and not {ast.unparse(d) for d in getattr(node, "decorator_list", [])} & overloads
    ]
    assert ast.get_docstring(tree), "the module has no docstring"
    assert silent == []


@pytest.mark.long
@each_of(EVERY_MODULE)
def test_nobody_uses_what_is_forbidden(path: Path) -> None:
    code = ast.unparse(without_docstrings(ast.parse(path.read_text(encoding="utf-8"))))
    found = [word for word in FORBIDDEN if re.search(rf"(?<![\w.]){re.escape(word)}", code)]
    assert found == (["torch.load"] if name_of(path) == READS_WEIGHTS else [])
    assert path.name != "utils.py"


def test_what_torch_saved_is_read_in_one_call_and_tensors_alone() -> None:
    path = next(path for path in EVERY_MODULE if name_of(path) == READS_WEIGHTS)
    assert ast.unparse(tree_of(path)).count("torch.load") == 1
    calls = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call)]
    (call,) = [node for node in calls if ast.unparse(node.func) == "torch.load"]
    assert {word.arg: ast.unparse(word.value) for word in call.keywords}["weights_only"] == "True"


def without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [
                part for part in node.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            ] or [ast.Pass()]
    return tree


@each_of(EVERY_MODULE)
def test_an_account_without_a_name_or_a_home_folder_is_met_in_one_place(path: Path) -> None:
    """As in a container: `Path.home`, `Path.expanduser` and `getpass.getuser` raise there."""
    names = {node.attr for node in ast.walk(tree_of(path)) if isinstance(node, ast.Attribute)}
    assert not names & {"expanduser", "getuser"} or name_of(path) == "anchorleg.places"
    assert "Path.home(" not in path.read_text(encoding="utf-8")


@each_of(EVERY_MODULE)
def test_no_error_is_swallowed_whole(path: Path) -> None:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ExceptHandler):
            kind = ast.unparse(node.type) if node.type else "BaseException"
            silent = all(isinstance(part, ast.Pass | ast.Continue) for part in node.body)
            assert not (silent and kind in BROAD), f"line {node.lineno}"


@each_of(EVERY_MODULE)
def test_nothing_is_left_to_do_later(path: Path) -> None:
    assert not re.search(r"\b(TODO|FIXME|XXX|HACK)\b", path.read_text(encoding="utf-8"))


@each_of(
    [
        *EVERY_MODULE,
        *(path for path in sorted(ROOT.glob("*")) if path.is_file()),
        *(
            path
            for name in ("docs", "templates", "containers", "examples")
            for path in sorted((ROOT / name).rglob("*.*"))
            if path.suffix not in {".png", ".webp"}
        ),
    ]
)
def test_nobody_is_told_to_install_a_name_that_is_not_ours(path: Path) -> None:
    """On the package index `anchorleg` belongs to nobody yet, and so to the first stranger who takes it."""
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"\b(?:re)?install\b[^\n]*(?<![./\w-])anchorleg(?![-\w/])", text) == []


def test_every_template_is_shipped_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    templates = {shown(path) for path in (ROOT / "templates").iterdir()}
    assert templates == {name for name in shipped if name.startswith("templates/")}


def test_the_base_install_has_no_torch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not {re.split(r"[<>=\[ ]", requirement)[0] for requirement in project["dependencies"]} & HEAVY


def test_slurm_is_spoken_to_in_one_module_of_the_controller() -> None:
    commands = {"sbatch", "squeue", "sacct", "scancel", "scontrol"}
    speakers = {
        shown(path)
        for path in EVERY_MODULE
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.List) and node.elts and isinstance(node.elts[0], ast.Constant)
        if node.elts[0].value in commands
    }
    # The job's first process asks once for the job's own end, where Slurm is too old to say it.
    assert speakers <= {
        "orchestrator/executors/slurm.py",
        "orchestrator/executors/site.py",  # `doctor` asks what the site allows
        "orchestrator/doctor/probe.py",  # from inside a job, too
        "orchestrator/jobside.py",
        "trainer/machine/launching.py",  # inside the job too: a signal that srun does not pass on
    }


@each_of(EVERY_MODULE)
def test_a_python_that_is_started_finds_no_module_of_the_folder_it_is_started_in(path: Path) -> None:
    """Without `-P` a `trainer.py` of the user's own is what `python -m trainer` runs."""
    for node in ast.walk(tree_of(path)):
        words = [ast.unparse(word) for word in node.elts] if isinstance(node, ast.List | ast.Tuple) else []
        before = words[: words.index("'-m'")] if "'-m'" in words else []
        assert not before or "'-P'" in before, f"line {node.lineno}"


def test_tests_in_different_folders_have_different_names() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
