"""What a run came to: read from its event history and its slots' own files. Read-only."""

from __future__ import annotations

from anchorleg.files import read_json_or_none
from anchorleg.job import attempt_numbers, lineage
from orchestrator.decisions.evidence import Claim, Exit
from orchestrator.decisions.verdicts import ASKED_TO
from orchestrator.executors.base import View
from orchestrator.run.evidence import read_record
from orchestrator.run.history import read_events
from orchestrator.run.ledger import load_ledger
from orchestrator.run.rundir import Run, RunDir

#: What our trainer leaves of a complete training (`trainer.training.features.final`).
FINAL = "final.safetensors"


class SlotSummary(View):
    """`steps_lost`: done by a job and not in what its successor began with. `idle_s`: between one job's last act and
    the next one's first (claim), summed over `gaps`.
    """

    slot: int
    jobs: int
    hand_overs: int
    steps: int
    steps_lost: int
    idle_s: float
    gaps: int
    evaluation: str = ""


class RunSummary(View):
    """The whole run. `lines`: where the files are."""

    slots: tuple[SlotSummary, ...]
    lines: tuple[str, ...]


def summarise(run: Run, run_dir: RunDir) -> RunSummary:
    """Errors: RunFolderError where the ledger is damaged."""
    ledger = load_ledger(run_dir, run.run_id)
    events = read_events(run_dir)
    slots = []
    for slot in ledger.slots if ledger else ():
        # By attempt: a controller that was killed between the event and the ledger tells an end again.
        ends = {e["attempt"]: e for e in events if e["kind"] == "ended" and e["slot"] == slot.index}
        lost = sum(
            max(0, e["step"] - e["checkpoint_step"])
            for e in ends.values()
            if e.get("step") is not None and e.get("checkpoint_step") is not None
        )
        idle = _gaps(run_dir, slot.index)
        slots.append(
            SlotSummary(
                slot=slot.index,
                jobs=slot.jobs,
                hand_overs=slot.hand_overs,
                steps=slot.step,
                steps_lost=lost,
                idle_s=sum(idle),
                gaps=len(idle),
                evaluation=_evaluation(run_dir, slot.index),
            )
        )
    lines = [f"Everything is in {run_dir.path}", "  checkpoints and metrics: slots/<slot>/attempts/<attempt>/"]
    lines.append("  job output: jobs/<job>/, or `orchestrator logs <slot>`")
    lines.extend(
        f"  slot {done.slot}'s policy, one file: {path.relative_to(run_dir.path)}"
        for done in slots
        for path in run_dir.slot(done.slot).glob(f"attempts/*/{FINAL}")
    )
    return RunSummary(slots=tuple(slots), lines=tuple(lines))


def _gaps(run_dir: RunDir, slot: int) -> list[float]:
    """Seconds between the end of one attempt and the claim of the next one, on the jobs' own clocks."""
    gaps, ended_at = [], None
    for number in attempt_numbers(run_dir.slot(slot)):
        folder = run_dir.attempt(slot, number)
        claim = read_record(Claim, folder / "claim")
        if ended_at is not None and claim is not None:
            gaps.append(max(0.0, claim.at - ended_at))
        ended = read_record(Exit, folder / "exit.json")
        # After a `stop` nobody waits for the next job.
        ended_at = ended.at if ended is not None and ended.asked != ASKED_TO else None
    return gaps


def _evaluation(run_dir: RunDir, slot: int) -> str:
    """The newest evaluation that the trainer reported in its progress."""
    try:
        stretches = lineage(run_dir.slot(slot))
    except ValueError:  # the run is over all the same
        return ""
    for stretch in reversed(stretches):
        progress = read_json_or_none(run_dir.attempt(slot, stretch.attempt) / "progress.json")
        if isinstance(progress, dict) and isinstance(progress.get("success"), (int, float)):
            goals = progress.get("evaluation_goals")
            small = f" ({goals} goals a task)" if goals else ""
            return f"{100 * progress['success']:.0f} % success{small}"
    return ""
