"""optimize and fast_bert: Intel's ways of calling ``trireme.optimize``. What differs is who owns the result: Intel's work on copies."""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
import trireme
from torch import nn
from trireme._optimize.report import say_once

# Options that ask for what does not happen here, and what is so instead. None of them changes what a model computes, but for rounding.
WITHOUT_EFFECT = {
    "conv_bn_folding": "batch normalization is not folded",
    "linear_bn_folding": "batch normalization is not folded",
    "weights_prepack": "weights keep torch's layout",
    # Intel's did it to models in eval() alone, where dropout computes nothing; a model that was trained later then trained without.
    "replace_dropout_with_identity": "dropout stays; in eval() it computes nothing",
    "optimize_lstm": "LSTMs stay torch's",
    "auto_kernel_selection": "torch chooses who multiplies matrices",
    "sample_input": "no layout depends on the input's shape",
    "graph_mode": "no graph is made; use torch.compile",
    "concat_linear": "linear layers are not put together, but for query, key and value of a fused encoder",
}


def optimize(
    model: nn.Module,
    dtype: torch.dtype | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    level: str = "O1",
    inplace: bool = False,
    conv_bn_folding: bool | None = None,
    linear_bn_folding: bool | None = None,
    weights_prepack: bool | None = None,
    replace_dropout_with_identity: bool | None = None,
    optimize_lstm: bool | None = None,
    split_master_weight_for_bf16: bool | None = None,
    fuse_update_step: bool | None = None,
    auto_kernel_selection: bool | None = None,
    sample_input: Any = None,
    graph_mode: bool | None = None,
    concat_linear: bool | None = None,
) -> Any:
    """The model, or (model, optimizer) if an optimizer was given, made fast by ``trireme.optimize``: copies, unless ``inplace``.

    ``dtype=torch.bfloat16`` follows ``trireme.bf16_plan``. With ``level="O0"``, and for a scripted model, what was given is returned as it is.
    ``fuse_update_step=False`` leaves the optimizer alone. Options that have no effect here are told on stderr when they ask for something.
    """
    options = dict(locals())
    if level not in ("O0", "O1"):
        raise RuntimeError(f"intel_extension_for_pytorch.optimize: level must be 'O0' or 'O1', not {level!r}")
    _check_dtype("optimize", dtype)
    if level == "O0" or isinstance(model, torch.jit.ScriptModule):
        return _result(model, optimizer)
    for name, instead in WITHOUT_EFFECT.items():
        if options[name] is not None and options[name] is not False:
            say_once(f"ipex.optimize: {name} has no effect: {instead}")
    if split_master_weight_for_bf16 is False and dtype == torch.bfloat16:
        say_once("ipex.optimize: split_master_weight_for_bf16=False has no effect: the halves together are the fp32 weight, bit for bit")
    if not inplace:
        model, optimizer = _copies(model, optimizer)
    trireme.optimize(model, None if fuse_update_step is False else optimizer, dtype)
    return _result(model, optimizer)


def fast_bert(model: nn.Module, dtype: torch.dtype = torch.float, optimizer: torch.optim.Optimizer | None = None, unpad: bool = False) -> Any:
    """A copy of a BERT of transformers, made fast. The optimizer stays the same object, and a learning rate scheduler that was made before keeps
    working: it is given the copy's parameters, as Intel's does. Padding is not computed, whatever ``unpad`` says: the results are the same."""
    _check_dtype("fast_bert", dtype)
    if not _is_bert(model):
        raise TypeError(
            "intel_extension_for_pytorch.fast_bert takes a BertModel of transformers, or a model that has one as its .bert, not "
            f"{type(model).__name__}; intel_extension_for_pytorch.optimize takes any model"
        )
    memo: dict[int, Any] = {}
    ours = copy.deepcopy(model, memo)
    if optimizer is not None:
        _point_at_copies(optimizer, memo)
    return trireme.optimize(ours, optimizer, dtype)


def _check_dtype(function: str, dtype: torch.dtype | None) -> None:
    if dtype not in (None, torch.float32, torch.bfloat16):
        raise ValueError(f"intel_extension_for_pytorch.{function}: dtype must be torch.bfloat16 or torch.float32, not {dtype}; Trireme has no float16 kernels")


def _result(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> Any:
    return model if optimizer is None else (model, optimizer)


def _copies(model: nn.Module, optimizer: torch.optim.Optimizer | None) -> tuple[nn.Module, torch.optim.Optimizer | None]:
    """Of both at once, so that the optimizer's copy has the parameters of the model's."""
    if hasattr(vars(optimizer).get("step") if optimizer is not None else None, "_wrapped_by_lr_sched"):
        say_once(
            "ipex.optimize: a learning rate scheduler was made before: it drives the optimizer that was given, not the copy that is returned. "
            "Make it afterwards, or call optimize with inplace=True"
        )
    return copy.deepcopy((model, optimizer))


def _is_bert(model: nn.Module) -> bool:
    """Who has no BERT of transformers imported has no model of it."""
    modeling = sys.modules.get("transformers.models.bert.modeling_bert")
    return modeling is not None and any(isinstance(each, modeling.BertModel) for each in (model, getattr(model, "bert", None)))


def _point_at_copies(optimizer: torch.optim.Optimizer, memo: dict[int, Any]) -> None:
    """memo: deepcopy's, by the id of what was copied."""
    for group in optimizer.param_groups:
        for place, param in enumerate(group["params"]):
            group["params"][place] = ours = memo.get(id(param), param)
            if ours is not param and param in optimizer.state:
                optimizer.state[ours] = optimizer.state.pop(param)
