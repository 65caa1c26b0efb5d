"""Models that are no encoder of families.py: attention through transformers' registry, Dropout and LayerNorm modules through our operators."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable

import torch
from torch import nn

from trireme import ops
from trireme._optimize import attention, transforms
from trireme._optimize.layers import is_plain, is_plain_layer_norm

CROSS_ATTENTION = ("cross", "encoder_attn", "encdec")  # in the names of modules
KEEPER = "_trireme_attention"  # on a model whose attention was switched


# ---- Attention ----


class Registered:
    """Registers our attention again where a pickled model is loaded: the name in its configuration must mean something."""

    def __reduce__(self) -> tuple:
        return _registered, ()


def _registered() -> Registered:
    attention.register()
    return Registered()


def switch_attention(model: nn.Module, taken: Iterable[nn.Module]) -> list[str]:
    """Sets the attention of every model of transformers in `model` that uses torch's, but for the `taken` ones and those that share their
    configuration. Returns the lines of a report."""
    if "transformers" not in sys.modules:
        return []
    from transformers import PreTrainedModel

    seen = {id(module.config) for module in taken}
    lines = []
    for module in model.modules():
        if not isinstance(module, PreTrainedModel) or id(module.config) in seen:
            continue
        seen.add(id(module.config))
        if line := _switch(module):
            lines.append(line)
    return lines


def _switch(model: nn.Module) -> str | None:
    current = getattr(model.config, "_attn_implementation", None)
    if current in (attention.PACKED, attention.PADDED):
        return None
    if reason := _why_not(model, current):
        return f"left the attention of {type(model).__name__}: {reason}"
    name = attention.PACKED if _may_be_packed(model) else attention.PADDED
    # The property itself would also set every sub-configuration, of models that do not support it.
    model.config._attn_implementation_internal = name
    setattr(model, KEEPER, Registered())
    return f"{type(model).__name__}: attention is ours ({name})"


def _why_not(model: nn.Module, current: str | None) -> str | None:
    import transformers

    if not attention.register():
        return f"transformers {transformers.__version__} has no registry of attention functions; 4.48 does"
    if not getattr(model, "_supports_sdpa", False) or not any(map(_looks_attention_up, model.modules())):
        return f"in transformers {transformers.__version__} it does not use the registry of attention functions"
    if current != "sdpa":
        return f'its attn_implementation is "{current}"; only "sdpa" is replaced'
    return None


def _looks_attention_up(module: nn.Module) -> bool:
    """Whether the file of its class knows the registry. Not the base class's file, which has it for all."""
    return hasattr(sys.modules.get(type(module).__module__), "ALL_ATTENTION_FUNCTIONS")


def _may_be_packed(model: nn.Module) -> bool:
    """Whether nobody looks at what attention gives at padded places. Cross-attention does, where a target happens to be as long as its source:
    the mask is that of the keys, and which queries count it does not say."""
    config = model.config
    crossed = getattr(config, "is_encoder_decoder", False) or getattr(config, "add_cross_attention", False)
    crossed = crossed or any(part in name.lower() for name, _ in model.named_modules() for part in CROSS_ATTENTION)
    return not crossed and bool(getattr(model, "_supports_flash_attn", False) or getattr(model, "_supports_flash_attn_2", False))


# ---- Dropout and LayerNorm ----
#
# A module gets a forward of its own, which names the function and the module: its class, and so every check of it, stays, and it can be
# copied and pickled.


def fused_dropout(module: nn.Dropout, x: torch.Tensor) -> torch.Tensor:
    if not module.training or not 0.0 < module.p < 1.0 or module.inplace or not _fits(x):
        return nn.Dropout.forward(module, x)
    return ops.dropout(x, module.p)


def fused_layer_norm(module: nn.LayerNorm, x: torch.Tensor) -> torch.Tensor:
    if x.dtype != module.weight.dtype or torch.is_autocast_enabled("cpu") or not _fits(x):
        return nn.LayerNorm.forward(module, x)
    return ops.layer_norm(x, module.weight, module.bias, module.eps)


def _fits(x: torch.Tensor) -> bool:
    if transforms.are_active():
        return False
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16) and x.numel() > 0


def swap_modules(model: nn.Module, taken: Iterable[nn.Module]) -> list[str]:
    """Gives Dropout and LayerNorm modules outside of the `taken` ones our operators. Returns the lines of a report."""
    inside = {id(module) for encoder in taken for module in encoder.modules()}
    counts = {"Dropout": 0, "LayerNorm": 0}
    for module in model.modules():
        if id(module) in inside:
            continue
        if is_plain(module, nn.Dropout):
            module.forward = functools.partial(fused_dropout, module)
            counts["Dropout"] += 1
        elif is_plain_layer_norm(module):
            module.forward = functools.partial(fused_layer_norm, module)
            counts["LayerNorm"] += 1
    found = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return [f"{found} modules outside of encoders are ours"] if found else []
