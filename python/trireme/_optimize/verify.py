"""TRIREME_VERIFY=1: the first batch both ways, and the difference in print."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from trireme import _environment

DONE = "_trireme_verified"


def is_asked() -> bool:
    return _environment.flag("TRIREME_VERIFY")


def once(model: nn.Module, original: Callable, args: tuple, kwargs: dict[str, Any], mask: torch.Tensor | None, packed: Callable[[], Any]) -> None:
    """Compares tokens, by the attention `mask`. Without dropout, for masks of two generators differ."""
    if not is_asked() or getattr(model, DONE, False):
        return
    setattr(model, DONE, True)
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            theirs, ours = original(model, *args, **kwargs)[0], packed()[0]
    finally:
        for module in training:
            module.training = True
    if mask is not None:
        theirs, ours = theirs[mask.bool()], ours[mask.bool()]
    difference = (theirs - ours).abs().max().item()
    print(
        f"trireme: verify: {type(model).__name__}: the first batch differs from transformers' by at most {difference:.1e} "
        f"where the largest value is {theirs.abs().max().item():.1e}",
        file=sys.stderr,
    )
