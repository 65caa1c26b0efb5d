"""``trireme.optimize``: makes a model and its optimizer fast, in place. docs/optimize.md has what it does in full."""

from __future__ import annotations

from typing import Any, overload

import torch
from torch import nn

from trireme import _environment
from trireme._library import ops as load_operators
from trireme._optimize import encoders, generic, optimizers, precision, verify
from trireme._optimize.precision import Bf16Plan, bf16_plan
from trireme._optimize.report import say

__all__ = ["Bf16Plan", "bf16_plan", "optimize"]

SAID = "_trireme_said"  # on a model: what was told about it


@overload
def optimize(model: nn.Module, optimizer: None = None, dtype: torch.dtype | None = None) -> nn.Module: ...
@overload
def optimize(model: nn.Module, optimizer: torch.optim.Optimizer, dtype: torch.dtype | None = None) -> tuple[nn.Module, torch.optim.Optimizer]: ...


def optimize(model: nn.Module, optimizer: torch.optim.Optimizer | None = None, dtype: torch.dtype | None = None) -> Any:
    """The model, and the optimizer if one was given, made fast in place.

    BERT, RoBERTa, XLM-R, DistilBERT and ELECTRA encoders of transformers run packed (padding is not computed) and fused. Other models of
    transformers get our attention, and Dropout and LayerNorm modules our operators. An AdamW, Adam, SGD or Adagrad of torch.optim becomes the
    fused one of trireme.optim, the same object. ``dtype=torch.bfloat16`` gives the model bf16 parameters where the CPU has instructions for
    it (see ``bf16_plan``), else nothing changes.

    Names, state_dict, save_pretrained, hooks, DDP, FSDP, gradient checkpointing and adapters keep working: what is not what it seems falls
    back, part by part. The memory of large CPU tensors is kept from step to step, in all of the process. Says once, on stderr, what was
    replaced and what was left. ``TRIREME_DISABLE=1`` turns it all off, ``TRIREME_VERIFY=1`` compares an encoder's first batch with
    transformers' own code.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"trireme.optimize takes a torch.nn.Module, not {type(model).__name__}")
    if not is_off():
        _say(model, _optimize(model, optimizer, dtype))
    return model if optimizer is None else (model, optimizer)


def is_off() -> bool:
    return _environment.flag("TRIREME_DISABLE")


def _optimize(model: nn.Module, optimizer: torch.optim.Optimizer | None, dtype: torch.dtype | None) -> list[str]:
    load_operators()
    torch.ops.trireme.keep_blocks()
    if isinstance(model, torch.jit.ScriptModule):
        lines = ["left the model: it is compiled by torch.jit; optimize what it was made from"]
        return lines + ([line] if optimizer is not None and (line := optimizers.optimize(optimizer, model)) else [])
    lines, packed = _optimize_encoders(model)
    lines += generic.switch_attention(model, packed)
    lines += generic.swap_modules(model, packed)
    precision.follow_plan(model)
    if not lines and not vars(model).get(SAID):
        lines.append("found nothing in the model that it knows")
    if any(hasattr(module, "_orig_mod") for module in model.modules()):
        lines.append("the model is compiled: what torch.compile takes in is transformers' own code; an uncompiled model is faster here")
    if optimizer is not None and (line := optimizers.optimize(optimizer, model)):
        lines.append(line)
    if dtype is not None and (line := precision.lower(model, optimizer, dtype)):
        lines.append(line)
    return lines


def _optimize_encoders(model: nn.Module) -> tuple[list[str], list[nn.Module]]:
    lines, packed = [], []
    for name, module in model.named_modules():
        family = encoders.family_of(module)
        if family is None:
            continue
        where = f"{type(module).__name__} ({name or 'the model'})"
        if reason := encoders.why_not(module, family):
            lines.append(f"left {where}: {reason}")
        else:
            encoders.enable(module, family)
            packed.append(module)
            lines.append(f"{where} {encoders.describe(module, family)}")
    if not packed and verify.is_asked():
        lines.append("TRIREME_VERIFY=1 compares packed encoders, and the model has none: nothing will be compared")
    return lines, packed


def _say(model: nn.Module, lines: list[str]) -> None:
    said = model.__dict__.setdefault(SAID, set())
    for line in lines:
        if line not in said:
            said.add(line)
            say(line)
