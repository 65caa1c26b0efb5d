"""What a result was measured on and with: every runner puts it into its JSON file."""

import importlib.metadata
import json
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


def add_results(path: pathlib.Path, cases: dict[str, dict]) -> None:
    """Each case with what it was measured on; what other runs found of other cases stays."""
    results = json.loads(path.read_text()) if path.exists() else {}
    for name, figures in cases.items():
        results[of_this_cpu(name)] = {"machine": describe(), **figures}
    path.write_text(json.dumps(results, indent=1) + "\n")


def of_this_cpu(case: str) -> str:
    """A case's name in a file of results: what was found of a CPU whose instructions were hidden stands beside the rest."""
    hidden = os.environ.get("ONEDNN_MAX_CPU_ISA")
    return f"{case}, {hidden}" if hidden else case


def _torch_version() -> str | None:
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    """With "-dirty" where more than results differs from it: a run may just have written those of its first case."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(pathlib.Path(__file__).parent), *arguments], capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(top,exclude)bench/results", ":(top,exclude)bench/plots")
    return (git("describe", "--always", "--abbrev=12") or "unknown") + ("-dirty" if changed else "")
