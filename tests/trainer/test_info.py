"""`trireme info` beside what the machine says of itself."""

import json
import os
import pathlib
import subprocess

import pytest

from .runs import TRIREME, needs_program
from .test_options import BUILD


def print_info(*arguments: str, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TRIREME_", "CCL_", "OMP_", "PMI_"))}
    program = BUILD / "tests" / "trainer" / "print_info"
    return subprocess.run([program, *arguments], env=environment | variables, capture_output=True, text=True, check=True, timeout=60).stdout


def test_json_is_what_the_machine_has():
    info = json.loads(print_info("--json", "--ranks", "2"))
    cpuinfo = pathlib.Path("/proc/cpuinfo").read_text()
    flags = next(line for line in cpuinfo.splitlines() if line.startswith("flags")).split()
    assert info["CPU"]["model"] in cpuinfo
    assert info["CPU"]["kernels"] == ("avx512" if "avx512vl" in flags else "avx2" if "avx2" in flags else "scalar")
    # "no AMX-BF16" where there is none; what the kernel permits is not in /proc.
    assert ("no AMX-BF16" in info["CPU"]["bf16"]) == ("amx_bf16" not in flags)
    assert info["granted"]["cores_granted"] <= len(os.sched_getaffinity(0))
    assert len(info["plan"]["choice"]) == 2
    is_amd = "AuthenticAMD" in cpuinfo and info["CPU"]["kernels"] == "avx512"
    assert info["CPU"]["fp32_products"] == ("trireme's" if is_amd else "torch's") + ", as is best for this CPU"
    assert any("127.0.0.1" in line for line in info["network"]["interfaces"])


def test_a_mask_and_a_cap_are_seen():
    cpu = min(os.sched_getaffinity(0))
    command = ["taskset", "-c", str(cpu), BUILD / "tests" / "trainer" / "print_info", "--json"]
    environment = os.environ | {"TRIREME_MAX_ISA": "scalar", "TRIREME_MATMUL": "trireme"}
    info = json.loads(subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60).stdout)
    assert info["granted"]["affinity_mask"] == str(cpu)
    assert info["granted"]["cores_granted"] == 1
    assert info["CPU"]["kernels"].startswith("scalar")
    assert info["CPU"]["fp32_products"] == "trireme's, by TRIREME_MATMUL"
    assert info["settings"]["TRIREME_MAX_ISA"] == "scalar"


def test_text_has_the_same_in_words():
    text = print_info(TRIREME_IFACE="lo")
    assert "lo 127.0.0.1: tried first" in text
    assert "TRIREME_IFACE  lo" in text
    assert "compute thread" in text


@pytest.mark.parametrize(("variable", "value"), [("CCL_WORKER_COUNT", "0"), ("TRIREME_BF16", "yes")])
@needs_program
def test_wrong_settings_are_explained_and_the_rest_is_shown(variable, value):
    done = subprocess.run([TRIREME, "info"], env={**os.environ, variable: value}, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"not known: {variable}={value}" in done.stdout and "interfaces" in done.stdout and f"{variable}  {value}" in done.stdout
