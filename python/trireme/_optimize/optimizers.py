"""Turns an optimizer of torch.optim into ours, in place: the object stays, and with it its groups, state and hooks, and whatever holds on to it,
such as a learning rate scheduler that was made before."""

from __future__ import annotations

import functools
import inspect
import weakref
from typing import Any

import torch
from torch import nn

from trireme import optim

# What torch's own implementations leave on an optimizer that our step does not do: unscaling gradients inside of it.
FUSED_ONLY = ("_step_supports_amp_scaling", "_need_device_dtype_check_for_fused")


def optimize(optimizer: torch.optim.Optimizer, model: nn.Module) -> str | None:
    """The line of a report, if there is something to say."""
    if is_fused(optimizer):
        return None
    name = type(optimizer).__name__
    ours = {torch.optim.AdamW: optim.AdamW, torch.optim.Adam: optim.Adam, torch.optim.SGD: optim.SGD, torch.optim.Adagrad: optim.Adagrad}
    kind = ours.get(type(optimizer))
    if kind is None:
        return f"left the optimizer {type(optimizer).__module__}.{name}: torch.optim's AdamW, Adam, SGD and Adagrad are replaced"
    if reason := _why_not(optimizer, model):
        return f"left the optimizer {name}: {reason}"
    _become(optimizer, kind)
    return f"the optimizer {name} is fused (the same object, now trireme.optim.{name})"


def is_fused(optimizer: torch.optim.Optimizer) -> bool:
    return type(optimizer).__module__ == "trireme.optim"


def _why_not(optimizer: torch.optim.Optimizer, model: nn.Module) -> str | None:
    for group in optimizer.param_groups:
        for option in ("capturable", "differentiable"):
            if group.get(option):
                return f"{option}=True"
        for param in group["params"]:
            if hasattr(param, "placements"):
                return "its parameters are sharded (DTensor)"
            if param.device.type != "cpu" or param.dtype not in (torch.float32, torch.bfloat16):
                return f"a parameter is {param.dtype} on {param.device}; float32 and bfloat16 on cpu are supported"
            if not optim.is_dense(param):
                return f"a parameter of shape {tuple(param.shape)} has gaps or overlaps in memory"
    if any(getattr(module, "sparse", False) for module in model.modules() if isinstance(module, (nn.Embedding, nn.EmbeddingBag))):
        return "the model has an embedding with sparse gradients"
    step = vars(optimizer).get("step")
    if step is not None and inspect.unwrap(step) is not inspect.unwrap(type(optimizer).step):  # a scheduler's wraps the class's own
        return "its step was replaced by somebody else"
    return None


def _become(optimizer: Any, kind: type) -> None:
    optimizer.__class__ = kind
    optimizer.max_grad_norm = optimizer.master_weights = optimizer.grad_norm = None
    for name in FUSED_ONLY:
        vars(optimizer).pop(name, None)
    optimizer._patch_step_function()  # so that step hooks are called
    if vars(optimizer).pop("step", None) is not None:
        optimizer.step = _counted_step(optimizer)
    for group in optimizer.param_groups:
        for option, value in optimizer.defaults.items():
            group.setdefault(option, value)
        for param in group["params"]:
            _convert_state(optimizer.state.get(param, {}), param)


def _counted_step(optimizer: Any) -> Any:
    """A scheduler wraps the step, to notice whether it was called before its own, and keeps the function it found: here it is ours."""
    reference = weakref.ref(optimizer)

    @functools.wraps(type(optimizer).step)
    def step(*args: Any, **kwargs: Any) -> Any:
        this = reference()
        this._opt_called = True
        return type(this).step(this, *args, **kwargs)

    step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    return step


def _convert_state(state: dict[str, Any], param: torch.Tensor) -> None:
    """Moments are fp32, also of bfloat16 parameters; the step is a tensor."""
    for key, value in state.items():
        if key == "step":
            state[key] = torch.tensor(float(value))
        elif isinstance(value, torch.Tensor):
            state[key] = optim.laid_as(param, value, key)
