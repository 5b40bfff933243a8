"""Libraries of C in a cache that jobs on other machines use at the same time, by whatever compiler is there."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shutil
import subprocess

import pytest
from daemons import PATIENCE_S
from needs import is_missing
from refused import refused

from trainer.machine import building
from trainer.machine.building import Recipe, UnreadLibraryError, find_or_build
from trainer.machine.host import CPUINFO

if shutil.which("cc") is None:
    is_missing("there is no C compiler")

FLAGS = ("-shared", "-fPIC")


@pytest.fixture(autouse=True)
def no_compiler_named(monkeypatch):
    monkeypatch.delenv("CC", raising=False)


@pytest.fixture
def recipe(tmp_path):
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "tiny.c").write_text("int answer(void) { return 42; }\n")
    return Recipe("tiny", sources, FLAGS)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


def compiled(path, source, *flags):
    command = ["cc", *FLAGS, *flags, "-o", path, "-x", "c", "-"]
    subprocess.run(command, input=source.encode(), check=True, timeout=PATIENCE_S)
    return path


class TestCompiler:
    def test_one_that_is_not_there_is_made_up_for_by_the_usual_one(self, recipe, folder, monkeypatch, caplog):
        """As in a container that has CC from its host."""
        monkeypatch.setenv("CC", "/nonexistent/gcc")
        assert ctypes.CDLL(str(find_or_build(recipe, folder).path)).answer() == 42
        (line,) = caplog.messages
        assert "No such file or directory: '/nonexistent/gcc'" in line
        assert line.endswith(": using cc")

    @pytest.mark.may_skip("another register elsewhere")
    @pytest.mark.skipif(platform.machine() != "x86_64", reason="another register elsewhere")
    def test_it_changes_nothing_of_how_this_program_computes(self, recipe, folder):
        """This library has denormals taken for zero, as what gcc before 13 links for fast mathematics does."""
        with (recipe.sources / "tiny.c").open("a") as source:
            source.write(
                "__attribute__((constructor)) static void be_fast(void)\n"
                "{ __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040); }\n"
            )
        find_or_build(recipe, folder)
        smallest = float("5e-324")
        assert smallest * 1.0 > 0.0


class TestProcessor:
    def test_a_library_for_another_is_left_to_it_and_another_is_built(self, recipe, folder, tmp_path):
        folder.mkdir(mode=0o700)
        made = compiled(tmp_path / "other.so", "int runs_here(void) { return 0; }")
        other = folder / f"tiny-{building._digest(made)}.so"
        made.rename(other)
        other.chmod(0o700)
        built = find_or_build(recipe, folder)
        assert built.path != other
        assert {path.name for path in folder.iterdir()} == {other.name, built.path.name}

    @pytest.mark.may_skip("other names elsewhere")
    @pytest.mark.skipif(platform.machine() != "x86_64" or not CPUINFO.exists(), reason="other names elsewhere")
    @pytest.mark.parametrize(
        ("flag", "name"), [("-msse4.2", "sse4_2"), ("-mavx2", "avx2"), ("-mfma", "fma"), ("-mavx512vl", "avx512vl")]
    )
    def test_a_library_knows_what_it_was_compiled_for(self, tmp_path, flag, name):
        made = compiled(tmp_path / "asked.so", building._RUNS_HERE.read_text(), flag)
        has_it = name in CPUINFO.read_text().split()
        assert ctypes.CDLL(str(made)).runs_here() == has_it


@pytest.mark.parametrize(
    ("name", "error", "wrong"),
    [
        ("_make_private", OSError(errno.ESTALE, os.strerror(errno.ESTALE)), "library.folder-unread"),
        ("run_to_its_end", BlockingIOError(errno.EAGAIN, "no process left"), "library.folder-unread"),
        ("run_to_its_end", subprocess.TimeoutExpired("cc", 120), "library.compiler-slow"),
        ("_make_private", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "library.folder-unusable"),
    ],
)
def test_what_may_pass_is_not_taken_for_a_missing_compiler(recipe, folder, monkeypatch, name, error, wrong):
    def refuse(*_):
        raise error

    monkeypatch.setattr(building, name, refuse)
    with refused(wrong) as told:
        find_or_build(recipe, folder)
    assert isinstance(told.value, UnreadLibraryError) == (wrong != "library.folder-unusable")


class TestOthers:
    """Jobs that run from what lies in the cache: on a network folder a removed file would be gone under them."""

    def test_one_that_others_may_write_to_is_not_loaded_and_not_removed(self, recipe, folder):
        path = find_or_build(recipe, folder).path
        inode = path.stat().st_ino
        path.chmod(0o770)
        with path.open("rb"):
            assert find_or_build(recipe, folder).path.stat().st_ino != inode
        assert inode in {left.stat().st_ino for left in folder.iterdir()}

    def test_a_folder_that_others_may_write_to_is_to_be_closed_and_not_removed(self, recipe, folder):
        built = find_or_build(recipe, folder)
        folder.chmod(0o770)
        with refused("library.folder-open") as told:
            find_or_build(recipe, folder)
        command = str(told.value).partition(": run ")[2].split()
        subprocess.run(command, check=True, timeout=PATIENCE_S)
        assert find_or_build(recipe, folder) == built

    def test_a_link_to_a_folder_is_not_used(self, recipe, folder, tmp_path):
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
        with refused("library.folder-of-another"):
            find_or_build(recipe, folder)
