"""``trireme.optimize``: makes a model and its optimizer fast, in place."""

from __future__ import annotations

import os
import sys
from typing import Any, overload

import torch
from torch import nn

from trireme._optimize import encoders

REPORTED = "_trireme_reported"


@overload
def optimize(model: nn.Module, optimizer: None = None, dtype: torch.dtype | None = None) -> nn.Module: ...
@overload
def optimize(model: nn.Module, optimizer: torch.optim.Optimizer, dtype: torch.dtype | None = None) -> tuple[nn.Module, torch.optim.Optimizer]: ...


def optimize(model: nn.Module, optimizer: torch.optim.Optimizer | None = None, dtype: torch.dtype | None = None) -> Any:
    """The model, and the optimizer if one was given, made fast in place.

    BERT, RoBERTa, XLM-R, DistilBERT and ELECTRA encoders of transformers run packed (padding is not computed) and fused. Names, state_dict,
    save_pretrained, hooks, DDP, FSDP, gradient checkpointing and adapters keep working: what is not what it seems falls back, part by part.
    Says once, on stderr, what was replaced and what was left. ``TRIREME_DISABLE=1`` turns it all off, ``TRIREME_VERIFY=1`` compares the first
    batch with transformers' own code.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"trireme.optimize takes a torch.nn.Module, not {type(model).__name__}")
    if os.environ.get("TRIREME_DISABLE", "0") != "1":
        lines = _optimize_encoders(model)
        _report(model, lines)
    return model if optimizer is None else (model, optimizer)


def _optimize_encoders(model: nn.Module) -> list[str]:
    lines = []
    for name, module in model.named_modules():
        family = encoders.family_of(module)
        if family is None:
            continue
        where = f"{type(module).__name__} ({name or 'the model'})"
        if reason := encoders.why_not(module, family):
            lines.append(f"left {where}: {reason}")
        else:
            encoders.enable(module, family)
            lines.append(f"{where} runs packed and fused")
    return lines or ["found no encoder that it knows; nothing was replaced"]


def _report(model: nn.Module, lines: list[str]) -> None:
    if getattr(model, REPORTED, False):
        return
    setattr(model, REPORTED, True)
    for line in lines:
        print(f"trireme: optimize: {line}", file=sys.stderr)
