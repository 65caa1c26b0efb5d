"""Some virtual machines announce AMX and cannot run it: torch's own bfloat16 products end the process there, Trireme or not. On such a machine
these tests keep oneDNN from using it, and the summary says so."""

import os
import pathlib
import signal
import subprocess
import sys

LIMIT = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}  # the level below AMX
PROBE = "import torch; x = torch.ones(32, 32, dtype=torch.bfloat16); torch.mm(x, x)"


def amx_is_announced_in_vain() -> bool:
    if "amx_bf16" not in pathlib.Path("/proc/cpuinfo").read_text() or LIMIT.keys() & os.environ.keys():
        return False
    return subprocess.run([sys.executable, "-c", PROBE], capture_output=True, timeout=300).returncode == -signal.SIGILL


# Before any of these tests computes: oneDNN looks once.
IS_LIMITED = amx_is_announced_in_vain()
if IS_LIMITED:
    os.environ.update(LIMIT)


def pytest_terminal_summary(terminalreporter):
    if IS_LIMITED:
        terminalreporter.write_line("tests/ops: this machine announces AMX and cannot run it; oneDNN was kept from it")
