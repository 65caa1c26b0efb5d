"""What a result was measured on and with: every runner puts it into its JSON file."""

import importlib.metadata
import os
import pathlib
import platform
import subprocess

ISA = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")


def describe() -> dict:
    fields: dict[str, str] = {}
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = fields.get("flags", "").split()
    return {
        "cpu": fields.get("model name", platform.machine()),
        "isa": [name for name in ISA if name in flags],
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "torch": _torch_version(),
        "commit": _commit(),
    }


def _torch_version() -> str | None:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    command = ["git", "-C", str(pathlib.Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"
