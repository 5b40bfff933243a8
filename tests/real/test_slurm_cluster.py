"""The test cluster itself: real, alone, and gone without a trace."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from daemons import Daemons, processes_with, started_at, sweep, wait_for
from slurm_cluster import PrivateSlurm, SlurmCluster

pytestmark = pytest.mark.slurm
CLI = Path(__file__).parents[1] / "support" / "slurm_cluster.py"


def leftovers(cluster: SlurmCluster) -> set[int]:
    return processes_with("SLURM_CONF", str(cluster.conf))


@pytest.mark.long
def test_stopping_leaves_no_process_whatever_the_job_did_to_hide(private_slurm: PrivateSlurm) -> None:
    cluster = private_slurm(nodes=2)
    # Durations that no other test run on this machine sleeps for at the same time.
    first, second = (str(random.randrange(10_000, 10**9)) for _ in range(2))
    job_id = cluster.submit(
        f"trap '' TERM INT; setsid nohup sleep {first} & env -i sleep {second} & echo up; wait; wait"
    )
    cluster.wait_for(lambda: "up" in cluster.output(job_id), "the job to be up")
    cluster.wait_for(lambda: len(sleepers(first, second)) == 2, "both sleepers")
    pids = sleepers(first, second)
    cluster.kill_node("n1")
    cluster.suspend_controller()

    cluster.stop()

    assert [pid for pid in pids if started_at(pid) is not None] == []
    assert leftovers(cluster) == set()


def test_a_cluster_ends_with_its_owner_even_when_that_is_killed(private_slurm: PrivateSlurm) -> None:
    # private_slurm is asked for only to skip where there is no Slurm.
    program = (
        "import sys, signal; sys.path.insert(0, sys.argv[1]); from slurm_cluster import *\n"
        "with throw_away(Layout(nodes=1)) as c:\n"
        "    c.submit('sleep 619'); print(c.folder, flush=True); signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(CLI.parent)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        cluster = SlurmCluster(Path(owner.stdout.readline().strip()))
        assert len(leftovers(cluster)) >= 3

        owner.send_signal(signal.SIGKILL)
        owner.wait()

        wait_for(lambda: not leftovers(cluster), "the guard to stop the cluster")
        wait_for(lambda: not cluster.folder.exists(), "the guard to remove the folder")


def test_a_folder_of_somebody_else_is_not_wiped(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="al-") as top:
        (Path(top) / "thesis.tex").write_text("years of work")

        with pytest.raises(FileExistsError, match="holds no cluster"):
            SlurmCluster(Path(top)).start()

        assert (Path(top) / "thesis.tex").read_text() == "years of work"


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="a root that can become somebody else is needed; others run as they are")
def test_an_ordinary_user_can_have_a_cluster_too(private_slurm: PrivateSlurm) -> None:
    nobody = 65534
    with tempfile.TemporaryDirectory(prefix="al-") as top:
        os.chown(top, nobody, nobody)
        cluster = SlurmCluster(Path(top) / "c")
        program = (
            "import sys; sys.path.insert(0, sys.argv[1]); from slurm_cluster import *\n"
            "c = SlurmCluster(Path(sys.argv[2])); c.start(Layout(nodes=1), guarded=True)\n"
            "job = c.submit('id -u; echo gpu=$CUDA_VISIBLE_DEVICES', '--gres=gpu:1')\n"
            "c.wait_for_state(job, 'COMPLETED'); print(c.output(job)); c.stop()\n"
        )

        done = subprocess.run(
            ["python3", "-c", program, str(CLI.parent), str(cluster.folder)],
            capture_output=True, text=True, check=False, user=nobody, group=nobody, extra_groups=[], cwd="/",
        )  # fmt: skip

        assert done.stdout == f"{nobody}\ngpu=0\n\n", done.stderr
        assert leftovers(cluster) == set()


def test_the_sweep_takes_children_that_hide_and_spares_another_cluster(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    daemons = Daemons(tmp_path, {"PATH": os.environ["PATH"], "SLURM_CONF": f"{tmp_path}/a"})
    daemons.start("ours", ["sh", "-c", "env -i sleep 600 & wait"])
    daemons.start("theirs", ["sleep", "600"], {"SLURM_CONF": f"{tmp_path}/ab"})
    wait_for(lambda: len(processes_with("SLURM_CONF", f"{tmp_path}/a")) == 2, "the shell and its child")
    try:
        assert sweep("SLURM_CONF", f"{tmp_path}/a") == 2
        assert daemons.pid("theirs") is not None
    finally:
        daemons.kill_all()


def test_the_sweep_finds_a_blank_environment_by_an_open_file_and_spares_another_root(tmp_path: Path) -> None:
    for name in ("a/log", "b/log", "root"):
        (tmp_path / name).mkdir(parents=True)
    conf = str(tmp_path / "a" / "conf")
    blank = "exec env -i sleep 600"
    elsewhere = f"import os, time; os.chroot({str(tmp_path / 'root')!r}); time.sleep(600)"
    ours, theirs = (Daemons(tmp_path / name, {"PATH": os.environ["PATH"]}) for name in ("a", "b"))
    ours.start("blank", ["sh", "-c", blank])
    theirs.start("sleeper", ["sleep", "600"])
    if os.geteuid() == 0:
        theirs.start("elsewhere", [sys.executable, "-c", elsewhere], {"SLURM_CONF": conf})
        wait_for(lambda: os.readlink(f"/proc/{theirs.pid('elsewhere')}/root") != "/", "the other root")
    try:
        wait_for(lambda: processes_with("SLURM_CONF", conf, tmp_path / "a") == {ours.pid("blank")}, "the one of ours")
        assert sweep("SLURM_CONF", conf, tmp_path / "a") == 1
        assert None not in map(theirs.pid, theirs.names())
    finally:
        ours.kill_all()
        theirs.kill_all()


def sleepers(*seconds: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:1] == [b"sleep"] and words[1].decode() in seconds:
                found.append(int(name))
    return found
