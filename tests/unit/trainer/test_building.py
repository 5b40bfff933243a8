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
from trainer.machine.building import NoLibraryError, Recipe, UnreadLibraryError, find_or_build
from trainer.machine.processor import CPUINFO

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
        assert line.endswith(": cc is taken")

    def test_flags_are_meant(self, recipe, folder, monkeypatch):
        monkeypatch.setenv("CC", "/nonexistent/gcc -O1")
        with refused("library.compiler-not-run"):
            find_or_build(recipe, folder)

    def test_one_that_refuses_is_meant(self, recipe, folder, monkeypatch):
        monkeypatch.setenv("CC", "false")
        with refused("library.not-compiled", library="tiny"):
            find_or_build(recipe, folder)

    def test_where_there_is_none_both_are_told(self, recipe, folder, monkeypatch, caplog):
        monkeypatch.setenv("CC", "/nonexistent/gcc")
        monkeypatch.setenv("PATH", str(folder))
        with refused("library.compiler-not-run", compiler="cc"):
            find_or_build(recipe, folder)
        assert "/nonexistent/gcc" in caplog.text

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

    def test_a_compiler_for_another_builds_none(self, recipe, folder, tmp_path, monkeypatch):
        elsewhere = tmp_path / "runs_here.c"
        elsewhere.write_text("int runs_here(void) { return 0; }\n")
        monkeypatch.setattr(building, "_RUNS_HERE", elsewhere)
        with pytest.raises(NoLibraryError, match="for a processor with more instructions"):
            find_or_build(recipe, folder)

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
        *(
            ("_make_private", OSError(one, os.strerror(one)), "library.folder-unread")
            for one in (errno.ESTALE, errno.EIO)
        ),
        ("run_to_its_end", BlockingIOError(errno.EAGAIN, "no process left"), "library.folder-unread"),
        ("run_to_its_end", subprocess.TimeoutExpired("cc", 120), "library.compiler-slow"),
        *(
            ("_make_private", OSError(one, os.strerror(one)), "library.folder-unusable")
            for one in (errno.EACCES, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOTDIR)
        ),
    ],
)
def test_what_may_pass_is_not_taken_for_a_missing_compiler(recipe, folder, monkeypatch, name, error, wrong):
    monkeypatch.setattr(building, "_PAUSES_S", (0, 0, 0))
    real, tries = getattr(building, name), []

    def refuse(*arguments):
        tries.append(name)
        if len(tries) < 5:
            raise error
        return real(*arguments)

    monkeypatch.setattr(building, name, refuse)
    with refused(wrong) as told:
        find_or_build(recipe, folder)
    assert isinstance(told.value, UnreadLibraryError) == (wrong != "library.folder-unusable")
    is_tried_again = wrong == "library.folder-unread"
    assert len(tries) == (4 if is_tried_again else 1)
    if is_tried_again:
        assert find_or_build(recipe, folder).path.exists()


class TestOthers:
    """Jobs that run from what lies in the cache: on a network folder a removed file would be gone under them."""

    def test_a_good_one_that_comes_while_we_look_at_a_damaged_one_stays(self, recipe, folder, monkeypatch):
        path = find_or_build(recipe, folder).path
        good, real = path.rename(folder / "good"), building._genuine
        path.write_bytes(b"torn")
        path.chmod(0o700)
        inode = good.stat().st_ino

        def genuine(found, name):
            library = real(found, name)
            if good.exists():
                good.rename(path)
            return library

        monkeypatch.setattr(building, "_genuine", genuine)
        with good.open("rb"):  # so that its number is nobody else's
            assert find_or_build(recipe, folder).path.stat().st_ino == inode

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
