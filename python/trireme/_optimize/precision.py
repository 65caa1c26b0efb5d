"""bfloat16: what this CPU does with it, and what becomes of a run that asks for it. Asking for bf16 never makes a run slower: where torch's bf16
matrix products are slower than fp32's, as they are by far without instructions for them, they are not used."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import os
import pathlib
import signal
import subprocess
import sys
import threading
import weakref
from typing import Any

import torch
from torch import nn

from trireme._optimize import optimizers
from trireme._optimize.report import say_once

INSTRUCTIONS = {"amx_bf16": "AMX-BF16", "avx512_bf16": "AVX512-BF16"}  # by their flag in /proc/cpuinfo
CHOICES = ("auto", "native", "emulate")
PROBE_SECONDS = 60
MARGIN = 1.2  # how many times as fast as fp32's a bf16 product must be: less is noise, and what bf16 rounds off should buy something
KEY = "trireme/bf16_plan"  # in the job's store: what rank 0 decided
ANSWER_SECONDS = 2 * PROBE_SECONDS  # that rank 0 may take; more where the group's timeout is longer
ISA_LEVELS = ("scalar", "avx2", "avx512")

_told: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()  # by store: what this process told, or was told


@dataclasses.dataclass(frozen=True)
class Bf16Plan:
    """What a run that asks for bf16 does on this CPU."""

    native: bool  # matrix products in bf16; else in fp32
    instructions: tuple[str, ...]  # that the CPU has
    reason: str
    can: bool = False  # not native, but only because fp32 was found to be about as fast

    def __str__(self) -> str:
        return f"bf16: {'matrix products in bf16' if self.native else 'computes in fp32'}: {self.reason}"


def bf16_plan(cpuinfo: str | os.PathLike[str] = "/proc/cpuinfo") -> Bf16Plan:
    """What bf16 means here, and why. TRIREME_BF16 and TRIREME_MAX_ISA are read each time. In a process group rank 0 decides: a rank that asks
    waits until rank 0 has asked too."""
    plan = own_plan(cpuinfo)
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() == 1:
        return plan
    return _of_rank_0(plan)


def own_plan(cpuinfo: str | os.PathLike[str]) -> Bf16Plan:
    """What this process would decide by itself."""
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
    if ratio < MARGIN:
        reason = f"this CPU has {has}, but torch's bf16 matrix product is {ratio:.2f} times as fast as fp32's, and {MARGIN} is the least"
        return Bf16Plan(False, found, reason, can=True)
    return Bf16Plan(True, found, f"this CPU has {has}; torch's bf16 matrix product is {ratio:.1f} times as fast as fp32's")


def _of_rank_0(own: Bf16Plan) -> Bf16Plan:
    """Ranks that time products one by one may find different things, and would train with different types. Through the store, not a
    collective: rank 0 may ask alone."""
    from torch.distributed import distributed_c10d

    rank, store = torch.distributed.get_rank(), distributed_c10d._get_default_store()
    if rank == 0:
        if _told.get(store) != own.native:
            store.set(KEY, str(int(own.native)))
            _told[store] = own.native
        return own
    if store not in _told:
        patience = max(datetime.timedelta(seconds=ANSWER_SECONDS), store.timeout)
        try:
            store.wait([KEY], patience)
        except RuntimeError as error:  # torch's DistStoreError is one
            raise RuntimeError(
                f"rank {rank}: bf16_plan: rank 0 has not said in {patience.total_seconds():.0f} s whether it computes in bf16. "
                "Ask for bf16 on every rank, or on none; if rank 0 has more to do before, give the group a longer timeout (--ddp_timeout)."
            ) from error
        _told[store] = store.get(KEY) == b"1"
    native = _told[store]
    if native == own.native:
        return own
    if native and not own.can:
        raise RuntimeError(f"rank {rank}: bf16_plan: rank 0 computes in bf16, but here: {own.reason}. Set TRIREME_BF16=emulate on every rank.")
    return Bf16Plan(native, own.instructions, f"rank 0 decides; by itself, this rank would say: {own.reason}")


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


def autocast_fits() -> bool:
    """Whether our operators have its type."""
    return autocast_dtype() in (None, torch.float32, torch.bfloat16)


# A model that optimize() was given leaves torch.autocast for all of its forward, where bf16 would be slower: its heads too, and models without a
# packed encoder. So does a packed encoder, which may be called by itself. By hooks: the forward keeps its signature, and the model can be copied
# and pickled.
#
# torch calls no hook where what ends a forward is no Exception, such as KeyboardInterrupt. Autocast is then off until the caller's own `with` ends,
# and the call stays in the list. Every call adds one entry and looks for its own from the end, so that what was left behind does nothing.

_left = threading.local()  # .calls: of this thread, the models being called, by id, and whether each left autocast


def follows_plan(model: nn.Module) -> bool:
    return leave_autocast in model._forward_pre_hooks.values()


def follow_plan(model: nn.Module) -> None:
    if not follows_plan(model):
        model.register_forward_pre_hook(leave_autocast, prepend=True)
        model.register_forward_hook(enter_autocast, always_call=True)


def leave_autocast(model: nn.Module, args: Any) -> None:
    if torch.compiler.is_compiling():
        return
    calls = vars(_left).setdefault("calls", [])
    calls.append((id(model), False))  # before what may raise: the other hook is called all the same
    if autocast_dtype() != torch.bfloat16:
        return
    plan = bf16_plan()
    say_once(f"torch.autocast: {plan}")
    if not plan.native:
        calls[-1] = (id(model), True)
        torch.set_autocast_enabled("cpu", False)  # not by a context, which would count as open if it were never left


def enter_autocast(model: nn.Module, args: Any, output: Any) -> None:
    if torch.compiler.is_compiling():
        return
    calls = vars(_left).get("calls", [])
    for place in reversed(range(len(calls))):
        called, left = calls[place]
        if called == id(model):
            del calls[place:]
            if left:
                torch.set_autocast_enabled("cpu", True)
            return


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
    if _is_fsdp1(model) or any(map(_is_watched, model.parameters())):
        return "bf16: the parameters stay fp32: call optimize before DDP or FSDP, which would no longer see the gradients"
    if optimizer is not None and (without := _without(optimizer, model)):
        return f"bf16: the parameters stay fp32: the optimizer does not hold {without} of those that train, and would not keep what bf16 rounds off"
    kept = ""
    if optimizer is not None:
        _split(optimizer, model)
        kept = ", fp32 copies are with the optimizer" if optimizer.master_weights == "fp32" else ", their lower halves are with the optimizer"
    _cast_parameters(model)
    return f"{plan}; parameters are bf16{kept}"


def _without(optimizer: Any, model: nn.Module) -> int:
    held = {id(param) for group in optimizer.param_groups for param in group["params"]}
    return sum(param.requires_grad and param.dtype == torch.float32 and id(param) not in held for param in model.parameters())


def _is_fsdp1(model: nn.Module) -> bool:
    if not torch.distributed.is_available():
        return False
    from torch.distributed.fsdp import FullyShardedDataParallel

    return any(isinstance(module, FullyShardedDataParallel) for module in model.modules())


def _is_watched(param: nn.Parameter) -> bool:
    """Whether somebody holds on to the node that accumulates the parameter's gradient, as DDP does to learn of it. With another type the
    parameter gets another node. One that nobody holds is gone at once, and with it what was written on it."""
    if not param.requires_grad or param.is_inference():
        return False

    def notes() -> dict[str, Any]:
        with torch.inference_mode(False), torch.enable_grad():
            return param.expand_as(param).grad_fn.next_functions[0][0].metadata

    notes()["trireme"] = True
    return notes().pop("trireme", False)


def _cast_parameters(model: nn.Module) -> None:
    """Not the buffers: they are no weights, and rounding them may be ruin, as with the frequencies of rotary positions."""
    for param in model.parameters():
        if param.dtype == torch.float32:
            param.data = param.data.to(torch.bfloat16)
        if param.dtype == torch.bfloat16 and param.grad is not None:
            param.grad = param.grad.to(torch.bfloat16)


def _split(optimizer: Any, model: nn.Module) -> None:
    """Of the model's own parameters: the optimizer may have others as well, of models that stay as they are. State is made whole:
    torch's optimizers begin one where it is empty, and this one may be loaded there before it has made a step."""
    own = {id(param) for param in model.parameters()}
    optimizer.master_weights = optimizer.master_weights or "split"
    split_at = vars(optimizer).setdefault("_split_at", {})
    for group in optimizer.param_groups:
        for param in group["params"]:
            if id(param) not in own or param.dtype != torch.float32:
                continue
            optimizer._init_state(group, param)
            rounded = param.detach().to(torch.bfloat16)
            if torch.equal(rounded.float(), param.detach()):
                param.data = rounded  # weights of a run in bf16: what that kept behind them, if it was loaded too, belongs to them
            param.data = optimizer._put_behind(param, optimizer.fp32_weights(param))
            split_at[param] = param._version
