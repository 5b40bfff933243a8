"""docs/benchmarks.md, made from bench/results/*.csv: no figure is typed by hand.

`python bench/report.py` writes the page; `make bench` ends with it.
"""

from __future__ import annotations

import csv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

PAGE = """# Benchmarks

Every figure comes from a script in `bench/`. `make bench` runs them all, writes `bench/results/*.csv`, and makes this
page of them. Rivals run in the same run, because machines are noisy: the ratios are what to trust. All figures:
two cores of a virtual machine, loopback, no GPU.

## A policy's way to a laptop

`python bench/weight_latency.py`: from the publication on one side to the verified file on the other side's disk, pushed
through one connection, against `rsync -a` over a fresh ssh every 5 s, at once.

@{weight_latency}

Most of ours is the server's look at the hint, every 0.25 s: network folders report no changes, so they are polled. Over
a real link add its round trip. Waiting costs almost nothing (`logins` above: one for the connection's life, where
`rsync` every 5 s logs in 17,280 times a day):

@{weight_idle}

## A policy's bytes

`python bench/policy_bytes.py`: trained actors, as published and in other ways.

@{policy_bytes}

## What sharing costs the learner

`python bench/sharing.py`: preset `tiny`, the smallest nets, for which publishing weighs most; blocks take turns.

@{sharing}

## Hand-over

`python bench/handover.py`: idle time between two jobs of a slot on the local executor, beside a bare restart of Python.

@{handover}
"""


def table(name: str) -> str:
    """`bench/results/<name>.csv` as a table of Markdown."""
    with open(ROOT / "bench" / "results" / f"{name}.csv", newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("_", " ") for cell in line) + " |" for line in lines)


def page() -> str:
    """The whole page."""
    text = PAGE
    for name in ("weight_latency", "weight_idle", "policy_bytes", "sharing", "handover"):
        text = text.replace(f"@{{{name}}}", table(name))
    return text


if __name__ == "__main__":
    (ROOT / "docs" / "benchmarks.md").write_text(page(), encoding="utf-8")
    print("docs/benchmarks.md is written")
