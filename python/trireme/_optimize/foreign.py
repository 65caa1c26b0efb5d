"""Finds what keeps an encoder from running packed: modules, forwards and hooks of a user's own.

On packed tokens a module gets [tokens, hidden] instead of [batch, length, hidden]. transformers' own classes for a family, PEFT's adapters and those of
torch's modules that are named here compute each token by itself, and do not care. Anything else may look at shapes, mix places or count calls, so an
encoder with it goes to transformers' own code.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.nn.modules import module as torch_module

from trireme._optimize.layers import hooks_of, origin_of

KNOWN_CLASSES = ("torch.", "peft.", "transformers.activations")
KNOWN_HOOKS = ("torch.", "trireme.")  # FSDP's bring parameters, pruning's and weight norm's make them
# Of torch's own layers. Others, such as a Softmax or a BatchNorm1d, mean another dimension where there is one less.
TOKENWISE = (
    nn.Linear, nn.Embedding, nn.LayerNorm, nn.Dropout, nn.Identity, nn.GELU, nn.ReLU, nn.SiLU, nn.Tanh, nn.Sigmoid,
    nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict,
)  # fmt: skip
METHODS = {"forward", "feed_forward_chunk", "ff_chunk"}  # set on a module, they replace its class's


def why_foreign(model: nn.Module, roots: tuple[str, ...], home: str) -> str | None:
    """The first thing at or below the `roots` in `model` that is not known; `home` is the Python module of the family's classes."""
    if torch_module._has_any_global_hook():
        return "torch has a hook for all modules"
    for root in roots:
        for name, module in _parts(root, model.get_submodule(root)):
            if reason := _why_foreign(module, home):
                return f"{name} {reason}"
    return None


def _parts(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    yield name, module
    for child_name, child in module._modules.items():
        if child is not None and child_name != "parametrizations":  # those get weights, not tokens
            yield from _parts(f"{name}.{child_name}", child)


def _why_foreign(module: nn.Module, home: str) -> str | None:
    kind = type(module)
    if not _is_known(kind, getattr(kind, "forward", None), home):
        return f"is a {kind.__module__}.{kind.__qualname__}, or its forward was replaced"
    if not METHODS.isdisjoint(vars(module)):
        return "has a forward of its own"
    hook = next((hook for hook in hooks_of(module) if not _is_known_hook(hook)), None)
    return None if hook is None else f"has a hook ({getattr(hook, '__qualname__', hook)})"


@functools.cache
def _is_known(kind: type, forward: Any, home: str) -> bool:
    """By the class and by its forward: a subclass has another module, a patched class has a forward of another module. FSDP and parametrizations derive
    classes: the layer is the one below them."""
    layer = next(base for base in kind.__mro__ if base.__module__.startswith("torch.nn.modules."))
    if layer is not nn.Module and not issubclass(layer, TOKENWISE):
        return False
    return all(origin_of(thing).startswith((*KNOWN_CLASSES, home)) for thing in (kind, forward))


def _is_known_hook(hook: Any) -> bool:
    # transformers and PEFT set this one for gradient checkpointing; it marks its output as wanting a gradient.
    return origin_of(hook).startswith(KNOWN_HOOKS) or getattr(hook, "__name__", "").startswith("make_inputs_require_grad")
