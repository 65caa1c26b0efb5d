"""bfloat16: what this CPU does with it, and what becomes of a run that asks for it. Asking for bf16 never makes a run slower: where torch's bf16
matrix products are slower than fp32's, as they are by far without instructions for them, they are not used."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from trireme._optimize import optimizers

INSTRUCTIONS = {"amx_bf16": "AMX-BF16", "avx512_bf16": "AVX512-BF16"}  # by their flag in /proc/cpuinfo
CHOICES = ("auto", "native", "emulate")
PROBE_SECONDS = 60
ISA_LEVELS = ("scalar", "avx2", "avx512")


@dataclasses.dataclass(frozen=True)
class Bf16Plan:
    """What a run that asks for bf16 does on this CPU."""

    native: bool  # matrix products in bf16; else in fp32
    instructions: tuple[str, ...]  # that the CPU has
    reason: str

    def __str__(self) -> str:
        return f"bf16: {'matrix products in bf16' if self.native else 'computes in fp32'}: {self.reason}"


def bf16_plan(cpuinfo: str | os.PathLike[str] = "/proc/cpuinfo") -> Bf16Plan:
    """What bf16 means here, and why. TRIREME_BF16 and TRIREME_MAX_ISA are read each time."""
    choice = _setting("TRIREME_BF16", "auto", CHOICES)
    limit = _setting("TRIREME_MAX_ISA", "avx512", ISA_LEVELS)
    found = _instructions(pathlib.Path(cpuinfo))
    has = " and ".join(found)
    if choice == "native":
        return Bf16Plan(True, found, "TRIREME_BF16=native" + ("" if found else "; this CPU has no instructions for it, which is slow"))
    if choice == "emulate":
        return Bf16Plan(False, found, "TRIREME_BF16=emulate")
    if not found:
        return Bf16Plan(False, found, "this CPU has neither AMX-BF16 nor AVX512-BF16, and fp32 is faster")
    if limit != "avx512":
        return Bf16Plan(False, found, f"this CPU has {has}, but TRIREME_MAX_ISA={limit}")
    failure, ratio = probe()
    if failure:
        return Bf16Plan(False, found, f"this CPU says that it has {has}, but {failure}")
    if ratio < 1:
        return Bf16Plan(False, found, f"this CPU has {has}, but torch's bf16 matrix product is {ratio:.2f} times as fast as fp32's")
    return Bf16Plan(True, found, f"this CPU has {has}; torch's bf16 matrix product is {ratio:.1f} times as fast as fp32's")


# Prints how many times as fast as fp32's a bf16 matrix product is, on one thread.
TRIAL = """
import time, torch
torch.set_num_threads(1)
def seconds(dtype):
    x, times = torch.ones(512, 512, dtype=dtype), []
    for _ in range(8):
        begin = time.perf_counter()
        assert (x @ x)[0, 0] == 512
        times.append(time.perf_counter() - begin)
    return min(times)
print(seconds(torch.float32) / seconds(torch.bfloat16))
"""


@functools.cache
def probe() -> tuple[str | None, float]:
    """What is wrong with torch's bf16 matrix products here, if anything, and how many times as fast as fp32's they are. Virtual machines are
    known that offer AMX and end a process that uses it with an illegal instruction: so another process tries."""
    try:
        trial = subprocess.run([sys.executable, "-c", TRIAL], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=PROBE_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        return f"torch's bf16 matrix product could not be tried ({error})", 0.0
    if trial.returncode == 0:
        return None, float(trial.stdout)
    how = signal.Signals(-trial.returncode).name if trial.returncode < 0 else f"exit code {trial.returncode}"
    return f"torch's bf16 matrix product ends a process with {how}; ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 avoids AMX", 0.0


def _setting(name: str, default: str, choices: tuple[str, ...]) -> str:
    value = os.environ.get(name) or default
    if value not in choices:
        raise ValueError(f"{name}={value}: it must be one of {', '.join(choices)}")
    return value


@functools.cache
def _instructions(cpuinfo: pathlib.Path) -> tuple[str, ...]:
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return ()
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), [])
    return tuple(name for flag, name in INSTRUCTIONS.items() if flag in flags)


# ---- torch.autocast ----


def autocast_dtype() -> torch.dtype | None:
    """What torch.autocast asks for, if anything."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


@contextlib.contextmanager
def no_autocast() -> Iterator[None]:
    """Our operators choose the types within them by their operands."""
    if not torch.is_autocast_enabled("cpu"):
        yield
        return
    with torch.autocast("cpu", enabled=False):
        yield


# ---- optimize(dtype=torch.bfloat16) ----


def lower(model: nn.Module, optimizer: torch.optim.Optimizer | None, dtype: torch.dtype) -> str | None:
    """Gives the model bf16 parameters where that is of use. With an optimizer, the lower halves of the fp32 weights go to its state, so that no
    step is lost. Returns the line of a report."""
    if dtype == torch.float32:
        return None
    if dtype != torch.bfloat16:
        raise ValueError(f"trireme.optimize: dtype must be torch.bfloat16 or torch.float32, not {dtype}")
    plan = bf16_plan()
    if not plan.native:
        return str(plan)
    if optimizer is None and model.training:
        return "bf16: the parameters stay fp32: a model that trains needs its optimizer given too, to keep what bf16 rounds off"
    if optimizer is not None and not optimizers.is_fused(optimizer):
        return "bf16: the parameters stay fp32: only a fused optimizer keeps what bf16 rounds off"
    if any(hasattr(param, "placements") for param in model.parameters()):
        return "bf16: the parameters stay fp32: they are sharded (DTensor); use the mixed precision of FSDP"
    if optimizer is not None:
        _split(optimizer)
    model.to(torch.bfloat16)
    return f"{plan}; parameters are bf16" + ("" if optimizer is None else ", their lower halves are with the optimizer")


def _split(optimizer: Any) -> None:
    from trireme._library import ops

    optimizer.master_weights = "split"
    for group in optimizer.param_groups:
        for param in group["params"]:
            if param.dtype == torch.float32:
                upper, optimizer.state[param]["lower_half"] = ops().split_bf16(param.detach())
                param.data = upper
