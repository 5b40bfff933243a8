"""Rows of metrics and evaluations as named numbers: TensorBoard's scalars, and W&B's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainer.history.read import mean_return, tells_success

#: Numbers of a row that are no curves: where it lies, and when it was written.
_NO_CURVES = frozenset({"from", "to", "at"})


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """A row of metrics as TensorBoard names: `train/q`, `diagnostics/critics_rank`, `td_error/reach-v3`, …"""
    values = {
        f"train/{name}": value
        for name, value in row.items()
        if isinstance(value, int | float) and name not in _NO_CURVES
    }
    for group in ("diagnostics", "contributed", "group"):
        numbers = {name: value for name, value in row.get(group, {}).items() if isinstance(value, int | float)}
        values |= {f"{group}/{name}": value for name, value in numbers.items()}
    values |= {f"group/rows/{slot}": value for slot, value in row.get("group", {}).get("group_rows", {}).items()}
    for name in ("td_error", "weight"):
        by_contributor = row.get("contributed", {}).get(name, {})
        values |= {f"contributed/{name}/{who}": value for who, value in by_contributor.items()}
    for task, measured in row["tasks"].items():
        values |= {f"{name}/{task}": value for name, value in measured.items() if name != "episodes"}
    return values


def evaluation_scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """An evaluation as TensorBoard names: `evaluation/success`, `evaluation/success/reach-v3`, …; of one that is judged
    by its return `evaluation/return`, …, and no success.
    """
    values = _of_success(row) if tells_success(row) else _of_return(row)
    for name, means in row.get("measures", {}).items():
        values |= {f"evaluation/{name}/{task}": value for task, value in means.items()}
    return values


def _of_success(row: Mapping[str, Any]) -> dict[str, float]:
    values = {"evaluation/success": row["mean_success"], "evaluation/iqm": row["iqm_success"]}
    for name, field in (("success", "success"), ("return", "returns"), ("steps", "steps_to_success")):
        values |= {f"evaluation/{name}/{task}": value for task, value in row[field].items()}
    for name, beside in (("averaged_success", row.get("averaged")), ("unseen", row.get("unseen"))):
        if beside is not None:
            values[f"evaluation/{name}"] = beside["mean_success"]
            values |= {f"evaluation/{name}/{task}": value for task, value in beside["success"].items()}
    return values


def _of_return(row: Mapping[str, Any]) -> dict[str, float]:
    values: dict[str, float] = {}
    beside = (("averaged_return", row.get("averaged")), ("unseen_return", row.get("unseen")))
    for name, found in (("return", row), *beside):
        if found is not None:
            values[f"evaluation/{name}"] = mean_return(found)
            values |= {f"evaluation/{name}/{task}": value for task, value in found["returns"].items()}
    return values
