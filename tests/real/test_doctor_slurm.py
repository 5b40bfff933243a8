"""`orchestrator doctor` on a real Slurm: what it finds where all is well, and where it is not."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from daemons import wait_for
from relay import NewRelay, Relay
from slurm_cluster import PrivateSlurm, SlurmCluster
from slurm_relay import on_slurm
from typist import Typist

#: Without torch, so that the probe has little to load; and without our dependencies, so that it must need none.
BARE_PYTHON = os.path.realpath(sys.executable)


def by_check(value: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["check"]: finding for finding in value["findings"]}


#: A machine that is busy is told to be slow.
MEASURED = ("folder",)


def levels(value: dict[str, Any]) -> set[str]:
    return {finding["level"] for finding in value["findings"]}


def left_behind(relay: Relay) -> list[str]:
    """What a visit of the doctor has left in the folders that it tried."""
    return [str(path) for path in relay.folder.rglob(".*") if path.name.startswith((".doctor", ".probe"))]


def running_probe(relay: Relay) -> Path:
    """Wait for the probe's job to run; the path of its report."""
    found: list[Path] = []

    def there() -> bool:
        found[:] = relay.folder.glob(".probe-*/jobs/probe/report.json")
        return bool(found)

    wait_for(there, "the probe to run")
    return found[0]


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def wait_until_looked(report: Path) -> None:
    """Wait until the probe has nothing left to do but to wait for the signal."""
    wait_for(lambda: "cuda" in read(report) and read(report)["looking"] == "", "the probe's looks")


@pytest.mark.slurm
def test_a_good_place_is_found_good_and_left_as_it_was(slurm: SlurmCluster, new_relay: NewRelay) -> None:
    relay = on_slurm(new_relay, slurm, slurm={"time_limit": "4:00:00"}, lead_seconds=60)
    before = {row.job_id for row in slurm.jobs()}  # other tests' jobs are remembered for minutes

    done = relay.run("doctor", "--json")

    assert done.code == 0, done.words
    value = json.loads(done.out)
    found = by_check(value)
    assert {one["level"] for check, one in found.items() if check not in MEASURED} == {"ok"}, done.out
    assert levels(value) <= {"ok", "warning"}, done.out
    assert found["partition"]["found"].startswith("gpu is up: no time limit, 4 nodes")
    assert "Slurm would accept it, and start it at 20" in found["job script"]["found"]
    assert left_behind(relay) == []
    assert not relay.run_dir.exists()
    assert {row.job_id for row in slurm.jobs()} <= before


@pytest.mark.long
@pytest.mark.slurm
def test_each_thing_that_is_wrong_is_a_line_that_says_what_to_do(
    private_slurm: PrivateSlurm, new_relay: NewRelay
) -> None:
    slurm = private_slurm(nodes=1)
    relay = on_slurm(new_relay, slurm, slurm={"partition": "short", "time_limit": "3"})
    few = relay.folder / "few"
    few.mkdir()
    for name in ("sbatch", "squeue", "scancel", "scontrol", "sinfo"):
        (few / name).write_text(f'#!/bin/sh\necho "{name} $1" >> {few}/asked\nexec /usr/bin/{name} "$@"\n')
        (few / name).chmod(0o755)
    relay.env["PATH"] = str(few)

    done = relay.run("doctor")

    done.assert_refused(11, "partition", "[doctor.problems]")
    assert "problem: partition: short gives at most 0:01:00 a job, but slurm.time_limit asks for 0:03:00" in done.out
    assert 'Set slurm.time_limit to "0:01:00", or set slurm.partition to gpu' in done.out

    slurm.kill_controller()
    (few / "asked").unlink()
    dead = relay.run("doctor", "--probe")
    # `scontrol ping` knows at once; any other command that asks slurmctld would block for seconds.
    asked = (few / "asked").read_text().splitlines()
    assert asked == ["scontrol ping"]
    dead.assert_refused(11, "slurmctld", "[doctor.problems]")
    assert "Slurmctld(primary) at" in dead.out
    assert "warning: probe: not sent" in dead.out
    assert left_behind(relay) == []


@pytest.mark.long
@pytest.mark.slurm
def test_limits_of_the_user_are_told_with_what_they_mean(private_slurm: PrivateSlurm, new_relay: NewRelay) -> None:
    slurm = private_slurm(nodes=1, accounting=True)
    slurm.ask(
        "sacctmgr", "-i", "modify", "user", slurm.ask("id", "-un").strip(), "set", "MaxSubmitJobs=2", "MaxWall=60"
    )
    relay = on_slurm(new_relay, slurm, slots=2, slurm={"time_limit": "4:00:00"})

    value = json.loads(relay.run("doctor", "--json").out)

    limits = by_check(value)["job limits"]
    assert limits["level"] == "warning"
    assert "only 1 of 2 slots" in limits["advice"]
    assert by_check(value)["walltime allowed"]["level"] == "problem"
    assert value["recommended"] == {"slurm": {"time_limit": "1:00:00", "max_jobs": 2}}

    slurm.ask("sacctmgr", "-i", "add", "account", "other")
    wrong = relay.run("doctor", "--set", "slurm.account=other")
    wrong.assert_refused(11, "job script", "[doctor.problems]")
    assert "Invalid account" in wrong.out


@pytest.mark.long
@pytest.mark.slurm
def test_the_probe_tells_what_a_node_has(slurm: SlurmCluster, new_relay: NewRelay, tmp_path: Path) -> None:
    """The signal is sent by hand here, so that nobody waits for the clock; see the long test for that.

    The node's driver is a program that answers as nvidia-smi does.
    """
    drivers = tmp_path / "drivers"
    drivers.mkdir()
    banner = "echo '| NVIDIA-SMI 535.183.01   Driver Version: 535.183.01   CUDA Version: 12.2     |'"
    (drivers / "nvidia-smi").write_text(
        f"#!/bin/sh\ncase $1 in --query*) echo 'NVIDIA A40, 46068 MiB' ;; *) {banner} ;; esac\n"
    )
    (drivers / "nvidia-smi").chmod(0o755)
    modules = tmp_path / "lmod" / "init" / "bash"  # no job of this Slurm knows `module` otherwise
    modules.parent.mkdir(parents=True)
    modules.write_text(f"module() {{ PATH={drivers}:$PATH; }}\n")
    setup = ["module load nvidia"]
    relay = on_slurm(new_relay, slurm, python=BARE_PYTHON, slurm={"time_limit": "4:00:00", "setup": setup})
    relay.env["MODULESHOME"] = str(tmp_path / "lmod")
    doctor = relay.spawn("doctor", "--probe", "--json")
    report = running_probe(relay)
    wait_until_looked(report)
    job = slurm.squeue()[0]
    slurm.ask("scancel", "--signal=USR2", "--batch", str(job.job_id))

    assert relay.ended(doctor) == 0, relay.output()
    value = json.loads(relay.output())
    found = by_check(value)
    assert found["probe"]["found"].startswith(f"job {job.job_id} ran on {job.node} after")
    assert re.match(r"USR2, asked for 120 s before the end, came \d+ s before it", found["signal"]["found"])
    assert found["failover"]["found"].startswith("sbatch and squeue work")
    assert found["driver"]["found"] == "NVIDIA A40, 46068 MiB; its driver runs CUDA 12.2 and older"
    assert value["probe"]["report"]["errors"] == {}
    assert (Path(relay.env["XDG_STATE_HOME"]) / "anchorleg" / "runs" / "probed").exists()  # `start` offers none then
    slurm.wait_until_empty()
    assert left_behind(relay) == []


@pytest.mark.long
@pytest.mark.slurm
def test_a_probe_that_is_interrupted_takes_its_job_with_it(slurm: SlurmCluster, new_relay: NewRelay) -> None:
    relay = on_slurm(new_relay, slurm, python=BARE_PYTHON)
    doctor = relay.spawn("doctor", "--probe")
    running_probe(relay)

    doctor.send_signal(signal.SIGTERM)

    assert relay.ended(doctor) == 130
    assert "[doctor.interrupted]" in relay.output()
    slurm.wait_until_empty()
    assert max(slurm.jobs(), key=lambda row: row.job_id).state == "CANCELLED"
    assert left_behind(relay) == []


@pytest.mark.long
@pytest.mark.slurm
def test_a_probe_waits_only_so_long_and_says_for_what(slurm: SlurmCluster, new_relay: NewRelay) -> None:
    slurm.submit("sleep 3000", "--nodes=4", "--exclusive")
    relay = on_slurm(new_relay, slurm, python=BARE_PYTHON)

    done = relay.run("doctor", "--probe", "--probe-wait", "3")

    done.assert_refused(11, "probe", "[doctor.problems]")
    assert "(Resources) and was cancelled" in done.out or "(Priority) and was cancelled" in done.out
    assert len(slurm.squeue()) == 1
    assert left_behind(relay) == []


@pytest.mark.long
@pytest.mark.slurm
def test_the_signal_comes_by_the_clock_and_the_config_follows(slurm: SlurmCluster, new_relay: NewRelay) -> None:
    """Some 45 s: Slurm looks at its jobs' ends every 30 s."""
    relay = on_slurm(new_relay, slurm, command=None, slurm={"time_limit": "4:00:00", "mem": "2G"})

    done = relay.run("doctor", "--probe", "--json")

    assert done.code == 0, done.words
    value = json.loads(done.out)
    found = by_check(value)
    assert found["signal"]["level"] == "ok", found["signal"]
    assert "asked for 120 s before the end, came" in found["signal"]["found"]
    assert found["program"]["level"] == "ok"
    assert found["GPU"]["found"] == "torch uses the CPU"
    assert value["recommended"] == {}
    slurm.wait_until_empty()
    assert left_behind(relay) == []


@pytest.mark.long
@pytest.mark.slurm
def test_start_refuses_what_no_node_has_offers_the_probe_and_says_why_the_first_job_failed(
    slurm: SlurmCluster, new_relay: NewRelay
) -> None:
    fails = ["sh", "-c", "echo there is no such task >&2; exit 3"]
    relay = on_slurm(new_relay, slurm, command=fails, slurm={"partition": "gpu"})
    for asked, fits in (
        ("slurm.cpus_per_task=9", "slurm.cpus_per_task to 8"),
        ("slurm.gpus=2", "slurm.gpus to 1"),
        ("slurm.mem=17G", 'slurm.mem to "16000M"'),
        ("slurm.partition=short", 'slurm.time_limit to "0:01:00", or set slurm.partition to gpu'),
        ("slurm.partition=nope", "slurm.partition to one of: gpu, short"),
    ):
        relay.run("start", "--set", asked).assert_refused(2, fits, "[slurm.never-fits]")
    too_short = relay.run("start", "--time-limit", "0:01:20")
    too_short.assert_refused(2, "[config.walltime-too-short]")
    assert "doctor --probe" not in too_short.words  # it would be refused afterwards
    assert not relay.run_dir.exists()

    typist = Typist([sys.executable, "-m", "orchestrator", "start"], relay.env, str(relay.folder))
    typist.wait_for("Send a probe of 3 minutes first? [y/N]")
    typist.type("y")
    typist.wait_for("is submitted")
    typist.type("\x03")
    assert typist.end() == 130
    slurm.wait_until_empty()
    assert not relay.run_dir.exists()

    controller = relay.spawn("start")
    wait_for(lambda: "crashed (there is no such task, exit code 3)" in relay.output(), "the reason")
    controller.send_signal(signal.SIGINT)
    relay.ended(controller)
    assert "doctor --probe" in relay.output()  # no probe has ended yet
    slurm.clear()
