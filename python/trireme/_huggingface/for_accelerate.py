"""The seams in accelerate, 1.1 to 1.15: the process's state, where the group is made, the Accelerator, through which every model and optimizer
passes, and `accelerate launch`. accelerate 1.12 was the last that knew ccl and ipex."""

from __future__ import annotations

import dataclasses
import functools
import os
import types
from typing import Any

from trireme import _launch
from trireme._huggingface import Asked, asked, is_true, launched_processes, of, refuse_uncounted

VERSIONS = "1.1 to 1.15"


def misfit(module: types.ModuleType, what: str) -> None:
    import accelerate

    asked.misfits.append(f"accelerate {accelerate.__version__}: {module.__name__} has no {what}; versions {VERSIONS} are known to fit")


# ---- PartialState ----


def patch_state(module: types.ModuleType) -> None:
    cls = getattr(module, "PartialState", None)
    if cls is None or not hasattr(cls, "_prepare_backend"):
        return misfit(module, "PartialState._prepare_backend")
    _choose_group(cls)
    _choose_backend(cls, module.DistributedType.MULTI_CPU)
    return None


def _choose_group(cls: Any) -> None:
    original = cls.__init__

    @functools.wraps(original)
    def __init__(self: Any, cpu: bool = False, **kwargs: Any) -> None:
        if kwargs.get("backend") is None and _takes_ccl_by_itself():
            kwargs["backend"] = "ccl"
        if kwargs.get("backend") == "ccl" or asked.anything():
            refuse_uncounted()
        if kwargs.get("backend") == "ccl":
            asked.raise_misfits_at_once()
            if os.environ.get("CCL_WORKER_COUNT") == "0":  # how `accelerate launch` says that it would not choose ccl by itself
                del os.environ["CCL_WORKER_COUNT"]
            _launch.fill(os.environ)
        is_group = launched_processes(os.environ) > 1
        if kwargs.get("backend") == "ccl":
            # Of one, too: accelerate makes a group wherever LOCAL_RANK is set. This one settles the threads by what is granted.
            is_group = is_group or int(os.environ.get("LOCAL_RANK", "-1")) >= 0
            if is_group:
                cpu = True
            else:
                del kwargs["backend"]  # nobody launched this process
        if cpu and is_group and asked.anything() and asked.timeout is not None:
            kwargs.setdefault("timeout", asked.timeout)
        original(self, cpu, **kwargs)

    cls.__init__ = __init__


def _takes_ccl_by_itself() -> bool:
    import torch

    if not asked.automatic() or torch.accelerator.is_available():
        return False
    # A single process only where accelerate itself makes a group of it: a shell that srun or mpirun started is no job.
    return int(os.environ.get("LOCAL_RANK", "-1")) >= 0 or launched_processes(os.environ) > 1


def _choose_backend(cls: Any, multi_cpu: Any) -> None:
    original = cls._prepare_backend

    @functools.wraps(original)
    def _prepare_backend(self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None) -> Any:
        if backend == "ccl":
            return "ccl", multi_cpu
        return original(self, cpu, sagemaker_dp, backend)

    cls._prepare_backend = _prepare_backend


# ---- Accelerator ----


def patch_accelerator(module: types.ModuleType) -> None:
    cls = getattr(module, "Accelerator", None)
    if cls is None:
        return misfit(module, "Accelerator")
    _follow_bf16_plan(cls)  # and tell a script without a Trainer what does not fit
    for name in ("prepare_model", "prepare_optimizer"):
        if not hasattr(cls, name):
            return misfit(module, f"Accelerator.{name}")
    _optimize_models(cls)
    _optimize_optimizers(cls)
    for name in ("_prepare_ipex_or_xpu", "_prepare_ipex"):  # up to 1.12
        if hasattr(cls, name):
            _replace_ipex(cls, name)
    return None


def computes_in_fp32(wanted: Asked, device: Any, mixed_precision: str) -> bool:
    """Whether bf16 was asked for that would be slower than fp32 here."""
    return wanted.anything() and _bf16_is_slower(device, mixed_precision)


def _bf16_is_slower(device: Any, mixed_precision: str) -> bool:
    if mixed_precision != "bf16" or getattr(device, "type", "") != "cpu":
        return False
    from trireme._optimize import bf16_plan, is_off
    from trireme._optimize.report import say_once

    if is_off():
        return False
    plan = bf16_plan()
    if not plan.native:
        say_once(str(plan))
    return not plan.native


def _follow_bf16_plan(cls: Any) -> None:
    original = cls.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        asked.raise_misfits()
        original(self, *args, **kwargs)
        if asked.anything() and self.native_amp and computes_in_fp32(asked, self.device, self.state.mixed_precision):
            self.native_amp = False

    cls.__init__ = __init__


def _is_ours(accelerator: Any) -> bool:
    return of(accelerator).optimized() and accelerator.device.type == "cpu"


def _escapes_autocast(accelerator: Any, model: Any) -> bool:
    """Whether trireme.optimize was given the model, and bf16 would be slower than fp32 here."""
    import torch

    from trireme._optimize import precision

    return isinstance(model, torch.nn.Module) and precision.follows_plan(model) and _bf16_is_slower(accelerator.device, accelerator.state.mixed_precision)


def _optimize_models(cls: Any) -> None:
    original = cls.prepare_model

    @functools.wraps(original)
    def prepare_model(self: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_ours(self):
            from trireme import optimize

            optimize(model)
        if not (self.native_amp and _escapes_autocast(self, model)):
            return original(self, model, *args, **kwargs)
        self.native_amp = False  # for this model: accelerate's autocast is inside of its forward, behind the hook that leaves any
        try:
            return original(self, model, *args, **kwargs)
        finally:
            self.native_amp = True

    cls.prepare_model = prepare_model


def _optimize_optimizers(cls: Any) -> None:
    original = cls.prepare_optimizer

    @functools.wraps(original)
    def prepare_optimizer(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        import torch

        if _is_ours(self) and isinstance(optimizer, torch.optim.Optimizer) and not getattr(optimizer, "_is_accelerate_prepared", False):
            from trireme._optimize import is_off, optimizers
            from trireme._optimize.report import say_once

            models = getattr(self, "_models", None) or [torch.nn.Module()]
            if not is_off() and (line := optimizers.optimize(optimizer, models[-1])):
                say_once(line)
        return original(self, optimizer, *args, **kwargs)

    cls.prepare_optimizer = prepare_optimizer


def _replace_ipex(cls: Any, name: str) -> None:
    """Models and optimizers were or will be ours; Intel's library, or what stands in for it, has no part in it."""
    original = getattr(cls, name)

    @functools.wraps(original)
    def prepare(self: Any, *args: Any) -> Any:
        return args if _is_ours(self) else original(self, *args)

    setattr(cls, name, prepare)


# ---- accelerate launch ----


def patch_config(module: types.ModuleType) -> None:
    """The configurations that the guides print have `ipex_config: {ipex: true}`, which accelerate refuses from 1.13 on. As a field it becomes the
    launcher's ``args.ipex``, like the fields beside it."""
    cls = getattr(module, "ClusterConfig", None)
    if cls is None or "ipex_config" in cls.__dataclass_fields__:
        return
    cls.__dataclass_fields__["ipex_config"] = dataclasses.field(default=None)
    original = cls.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, ipex_config: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self.ipex_config = ipex_config or {}
        original(self, *args, **kwargs)

    cls.__init__ = __init__


def patch_launcher(module: types.ModuleType) -> None:
    """What a configuration says of ipex and ccl reaches the script, whether Intel's packages are there or not. From 1.10 to 1.12 accelerate reads
    ``args.ipex`` where intel_extension_for_pytorch is installed, though no option makes it."""
    original = getattr(module, "prepare_simple_launcher_cmd_env", None)
    if original is None:
        return

    @functools.wraps(original)
    def prepare_simple_launcher_cmd_env(args: Any) -> Any:
        if not hasattr(args, "ipex"):
            args.ipex = is_true("ACCELERATE_USE_IPEX")
        command, env = original(args)
        if args.ipex:
            env["ACCELERATE_USE_IPEX"] = "true"
        if getattr(args, "mpirun_hostfile", None) is not None and getattr(args, "mpirun_ccl", None):
            env["CCL_WORKER_COUNT"] = str(args.mpirun_ccl)
        return command, env

    module.prepare_simple_launcher_cmd_env = prepare_simple_launcher_cmd_env  # type: ignore[attr-defined]
