"""What a processor is called: bits are compared where two have one name."""

from __future__ import annotations

from pathlib import Path

from trainer.machine import host

X86 = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 26
model\t\t: 2
model name\t: AMD EPYC
stepping\t: 1
cpu MHz\t\t: 2700.000
"""
#: As arch/arm64/kernel/cpuinfo.c of Linux writes it.
NEOVERSE = """processor\t: 0
BogoMIPS\t: 243.75
Features\t: fp asimd evtstrm
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: {part}
CPU revision\t: 1
"""
#: As arch/powerpc/kernel/setup-common.c does.
POWER = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nrevision\t: 2.3 (pvr 004e 1203)\n"


def test_each_kind_has_a_name_of_its_own(tmp_path: Path) -> None:
    names, cpuinfo = [], tmp_path / "cpuinfo"
    for text in (X86, NEOVERSE.format(part="0xd0c"), NEOVERSE.format(part="0xd40"), POWER):
        cpuinfo.write_text(text)
        names.append(host.processor(cpuinfo))
    assert names[0] == "AuthenticAMD 26 2 AMD EPYC 1"  # checkpoints have it
    assert names[3] == "POWER9, altivec supported 2.3 (pvr 004e 1203)"
    assert len({*names, ""}) == 5


def test_variables_that_choose_instructions_are_named() -> None:
    found = host.variables({"OPENBLAS_CORETYPE": "Haswell", "MKL_CBWR": "AVX2", "OPENBLAS_L2_SIZE": "512"})
    assert found == "OPENBLAS_CORETYPE=Haswell MKL_CBWR=AVX2"
    assert host.variables({"MKL_CBWR": "", "PATH": "/bin"}) == "none"
