"""What the pages promise: nowhere more than was tried, and the numbers in their sentences are the code's."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from orchestrator import failover
from orchestrator.decisions import nodes, requests, sightings
from orchestrator.hosts import notice as clouds
from orchestrator.run import lease
from orchestrator.screens.status import WATCH_S
from syncd.laptop import capacity
from syncd.shared import incoming, layout, manifest
from syncd.wire import arrivals, protocol
from syncd.wire.arrivals import MAX_FILES
from trainer.buffers.contributed import MAX_SHARE
from trainer.evaluation import process as evaluating
from trainer.sharing import selection, spotcheck
from trainer.training.features import wandb as curves
from trainer.tuning import training as tuning
from viewer import pacing
from viewer.server import http

ROOT = Path(__file__).resolve().parents[2]
#: What nothing of this was ever run on.
NEVER_RUN = ("macOS", "Apptainer", "several GPUs", "network folders", "wandb.ai")
#: Numbers in words, as the pages have them.
WORDS = {1: "once", 2: "two", 3: "three", 5: "five", 10: "ten", 12: "twelve"}
MIB = 2**20
SECURITY = "../SECURITY.md"
OUT, AT_ONCE = WORDS[nodes.EXCLUDED_S // 3600], WORDS[nodes.NODES_AT_ONCE]
PING_S, DEAD_S = protocol.PING_EVERY_S, protocol.DEAD_AFTER_S
LEASE_MIN = WORDS[lease.TTL_S // 60]


def test_the_readme_says_what_was_not_tested() -> None:
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("| Tested on | Not tested on |")[1].split("\n\n")[0]
    not_tested = [row.split("|")[2] for row in table.splitlines()[2:]]
    assert [what for what in NEVER_RUN if not any(what in cell for cell in not_tested)] == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("cluster.md", f"from another machine once it has been silent for {LEASE_MIN} minutes"),
        ("cluster.md", f"ends after {WORDS[failover.SILENT_S // 60]} minutes without a controller"),
        ("cluster.md", f"no sign of life for {WORDS[sightings.HEARTBEAT_SILENT_S // 60]} minutes"),
        ("cluster.md", f"after {WORDS[sightings.BEGIN_STALLS]} times `relay.stall_seconds`"),
        ("cluster.md", f"and for {WORDS[int(sightings.TIMES_USUAL)]} times its usual pause"),
        ("cluster.md", f"unreachable for {WORDS[requests.BLIND_LONG_S // 60]} minutes"),
        ("cluster.md", f"metadata service every {WORDS[int(clouds.LOOK_S)]} seconds"),
        ("cluster.md", f"sent every {curves.TRANSMIT_S} s"),
        ("cluster.md", f"waits up to {curves.FLUSH_S:.0f} s for unsent rows"),
        ("architecture.md", f"stood still for {lease.TTL_S:.0f} s on the *observer's* monotonic clock"),
        ("architecture.md", f"out for {OUT} hours, {AT_ONCE} nodes at most"),
        ("architecture.md", f"is silent for {WORDS[evaluating.SILENCE_S // 60]} minutes is repeated once"),
        ("architecture.md", f"ping every {PING_S:.0f} s and give the other up after {DEAD_S:.0f} s"),
        ("architecture.md", f"HTTP serves {WORDS[len((*http.FILES, *http.AGENTS))]} fixed files"),
        ("troubleshooting.md", f"after {WORDS[sightings.BEGIN_STALLS]} times `relay.stall_seconds`"),
        ("watching.md", {50: "at most a fiftieth of a core"}[int(pacing.REST)]),
        ("laptops.md", f"At most {incoming.MAX_WAITING} segments of one account wait"),
        ("laptops.md", f"no learner has been heard of for {WORDS[selection.STALE_S // 60]} minutes"),
        ("laptops.md", f"other files, {WORDS[incoming.ABANDONED_S // 60]} minutes"),
        ("laptops.md", f"together make up at most {100 * MAX_SHARE:.0f} % of each task's rows"),
        ("laptops.md", f"within {spotcheck.TOLERANCE} on others"),
        ("laptops.md", f"The first {spotcheck.FIRST} episodes of each contributor"),
        ("watching.md", f"`--watch` refreshes the table every {WORDS[int(WATCH_S)]} seconds"),
        (SECURITY, f"a mirror has {capacity.MAX_SLOTS:,} slots, {MAX_FILES:,} files and"),
        (SECURITY, f"files and {capacity.MAX_BYTES // (1024 * MIB)} GiB at most, and"),
        (SECURITY, f"and {layout.FREE_BYTES // (1024 * MIB)} GiB (on a small disk {100 * layout.FREE_SHARE:.0f} %)"),
        (SECURITY, f"{manifest.MAX_RAW_BYTES // MIB} MiB of weights at most, {manifest.MAX_GROWTH} times what"),
        (SECURITY, f"{MAX_FILES:,} files and {arrivals.MAX_VERDICTS:,} verdicts wait at most"),
        ("watching.md", {1.1: "unless others are a tenth faster"}[tuning.WORTH_CHANGING]),
    ],
)  # fmt: skip
def test_a_number_in_a_sentence_is_the_codes(name: str, sentence: str) -> None:
    assert sentence in " ".join((ROOT / "docs" / name).read_text(encoding="utf-8").split())


def test_each_test_that_the_page_on_security_names_is_there() -> None:
    page = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    files = {path.name: path for path in (ROOT / "tests").rglob("*.py")}
    for named in re.findall(r"`((?:tests/)?[\w/]+\.py)`", page):
        assert Path(named).name in files, named
        assert "/" not in named or (ROOT / named).is_file(), named
    all_of_them = "\n".join(path.read_text(encoding="utf-8") for path in files.values())
    for named in re.findall(r"`(test_\w+)`", page):
        assert f"def {named}(" in all_of_them, named


def test_how_soon_a_policy_arrives_is_what_was_measured() -> None:
    with open(ROOT / "bench/results/weight_latency.csv", encoding="utf-8") as file:
        measured = {row["what"]: row["median_s"] for row in csv.DictReader(file)}
    said = " ".join((ROOT / "README.md").read_text().split())
    assert f"arrived {measured['openssh']} s after its publication (median)" in said
