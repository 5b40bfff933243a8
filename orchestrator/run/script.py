"""The job script: a template, a few values, and quoting.

An unknown name in the template (`orchestrator.template`) and a value that the template does not use are both errors: a
script with a hole in it must not reach the queue.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from orchestrator.config import RunConfig
from orchestrator.sections import SlurmSection
from orchestrator.template import filled, names_in
from orchestrator.walltime import format_duration

#: The folder of links to the jobs' output files, in the run folder.
LOGS = "logs"
#: Before the user's lines of shell. A login shell knows `module`; a batch script would have it from the shell in which
#: `start` was typed, as a function in its environment, and that is not passed on.
MODULES = """\
# `module`, where this shell does not know it yet: from the first of these files that has it.
for init in "${MODULESHOME:+$MODULESHOME/init/bash}" "${LMOD_PKG:+$LMOD_PKG/init/bash}" /etc/profile.d/lmod.sh \\
    /etc/profile.d/z00_lmod.sh /etc/profile.d/modules.sh /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash
do
    ! type module >/dev/null 2>&1 || break
    [ ! -r "$init" ] || . "$init"
done
"""


class Raw(str):
    """Text that goes into a script as it is: lines that this module made, or that the user wrote as shell."""

    __slots__ = ()


def render(template: str, values: Mapping[str, str]) -> str:
    """`template` with every `@{name}` replaced by its value, shell-quoted unless it is `Raw`.

    Errors: ValueError for a name without a value, and for a value without a place.
    """
    used = names_in(template)
    if missing := sorted(used - set(values)):
        raise ValueError(f"the template asks for @{{{missing[0]}}}, which has no value")
    if unused := sorted(set(values) - used):
        raise ValueError(f'the template has no place for "{unused[0]}"')

    def quoted(name: str) -> str:
        value = values[name]
        return value if isinstance(value, Raw) else shlex.quote(value)

    return filled(template, quoted)


@lru_cache
def template_text(name: str) -> str:
    """A template that comes with the package: beside it in a wheel, in `templates/` of the tree otherwise."""
    package = Path(__file__).parents[1]
    for folder in (package / "templates", package.parent / "templates"):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8")
    raise FileNotFoundError(f"the installation lacks its template {name}; install Anchorleg's checkout again")


def sbatch_lines(slurm: SlurmSection) -> Raw:
    """The `#SBATCH` lines of the config's own fields; empty fields give no line."""
    gpus = f"{slurm.gpu_type}:{slurm.gpus}" if slurm.gpu_type else str(slurm.gpus)
    options = {
        "ntasks-per-node": str(slurm.ranks // slurm.nodes) if slurm.ranks > 1 else None,
        "partition": slurm.partition,
        "account": slurm.account,
        "qos": slurm.qos,
        "cpus-per-task": str(slurm.cpus_per_task),
        "gres": f"gpu:{gpus}" if slurm.gpus else None,
        "mem": slurm.mem,
        "constraint": slurm.constraint,
        "exclude": slurm.exclude,
    }
    lines = [f"#SBATCH --{name}={_option(value)}" for name, value in options.items() if value]
    lines += [f"#SBATCH {option}" for option in slurm.extra]
    return Raw("\n".join(lines))


def setup_lines(slurm: SlurmSection) -> Raw:
    """The user's lines of shell, behind what makes `module` known to them; nothing where there are none."""
    return Raw(MODULES + "\n".join(slurm.setup) if slurm.setup else "")


def _option(value: str) -> str:
    # sbatch splits these lines at white space itself; a newline would start a line of shell.
    if re.search(r"[\s'\"\\]", value):
        raise ValueError(f"an sbatch value must not hold white space or quotes: {value!r}")
    return value


def job_script(
    config: RunConfig, *, executor: str, run_name: str, slot: int, job_dir: Path, code_dir: Path, python: str
) -> str:
    """The script of one job. Both executors run the same; to bash the `#SBATCH` lines are comments."""
    return render(
        template_text("train.sbatch"),
        {
            "job_name": Raw(f"{run_name}-{slot}"),
            "nodes": Raw(str(config.slurm.nodes)),
            "ranks": Raw(str(config.slurm.ranks)),
            "sbatch_lines": sbatch_lines(config.slurm),
            "time_limit": Raw(format_duration(config.slurm.time_limit)),
            "lead_seconds": Raw(str(config.lead_seconds)),
            "setup_lines": setup_lines(config.slurm) if executor == "slurm" else Raw(""),
            "code_dir": str(code_dir),
            "job_dir": str(job_dir),
            "logs_dir": str(job_dir.parent.parent / LOGS),
            "token": job_dir.name,
            "python": python,
        },
    )
