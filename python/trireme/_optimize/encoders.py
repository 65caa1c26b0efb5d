"""Runs the encoders of families.py packed. The forward methods of their classes are replaced, once, by ones that look at the module: one that
was not optimized, or a call that asks for what the packed way has not, goes to transformers' own code."""

from __future__ import annotations

import functools
import inspect
from typing import Any

import torch
from torch import nn

from trireme._optimize import foreign, layers, precision, transforms, verify
from trireme._optimize.families import FAMILIES, Family
from trireme._optimize.packing import Packing, packing_of
from trireme._optimize.report import say_once

MARK = "_trireme_packed"  # on a module that optimize() was asked for: how many of its calls ran packed

# Arguments that the packed way takes; any other that is given sends the call to transformers' own code.
TAKEN = {"self", "input_ids", "attention_mask", "token_type_ids", "position_ids", "return_dict"}
# Those that change nothing in an encoder: a Trainer's, for the loss, which heads hand on to everything below them, and a decoder's.
TAKEN |= {"num_items_in_batch", "use_cache", "cache_position"}


def family_of(module: nn.Module) -> Family | None:
    """By the module's own class: a subclass may do anything, but for the one that FSDP makes."""
    own = type(module)
    if own.__name__.startswith("FSDP") and len(own.__bases__) == 2:
        own = own.__bases__[1]
    for family in FAMILIES:
        if own.__module__ == f"transformers.models.{family.name}.modeling_{family.name}" and own.__name__ == f"{family.prefix}Model":
            return family
    return None


def why_not(module: nn.Module, family: Family) -> str | None:
    """Why an encoder cannot run packed at all."""
    config = module.config
    if getattr(config, "is_decoder", False):
        return "it is a decoder"
    if getattr(config, "position_embedding_type", "absolute") != "absolute":
        return f"its positions are {config.position_embedding_type}"
    if getattr(config, "is_causal", False):
        return "its configuration says is_causal"
    return next((f"a parameter is {p.dtype} on {p.device}" for p in module.parameters() if not _is_ours(p)), None)


def _is_ours(x: torch.Tensor) -> bool:
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16)


def enable(module: nn.Module, family: Family) -> None:
    _replace_forwards(family)
    vars(module).setdefault(MARK, 0)
    precision.follow_plan(module)


def describe(module: nn.Module, family: Family) -> str:
    """How an enabled encoder runs, as it stands now."""
    if reason := why_padded(module, family):
        return f"runs transformers' own code, slower: {reason}"
    parts = map(family.layer, family.layers(module))
    odd = [layers.odd_part(checks(part)) for part in parts for checks in (layers.attention_checks, layers.feed_forward_checks)]
    left = sorted({part for part in odd if part})
    if not left:
        return "runs packed and fused"
    return f"runs packed; {odd.count(None)} of {len(odd)} halves of layers are fused, not those with {', '.join(left)}"


@functools.cache
def _replace_forwards(family: Family) -> None:
    model_class, layer_class, question_answering = family.classes()
    model_class.forward = _model_forward(model_class.forward, family)
    layer_class.forward = _layer_forward(layer_class.forward, family)
    if question_answering is not None:
        question_answering.forward = _question_answering_forward(question_answering.forward)


# ---- A layer ----


def _layer_forward(original: Any, family: Family) -> Any:
    @functools.wraps(original)
    def forward(self: nn.Module, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        packing = args[0] if args else None
        if not isinstance(packing, Packing):
            return original(self, hidden_states, *args, **kwargs)
        return layers.forward(family.layer(self), hidden_states, packing)

    return forward


def _holder(model: nn.Module) -> nn.Module:
    """The module whose layers they are."""
    return model.transformer if hasattr(model, "transformer") else model.encoder


def _run_layers(model: nn.Module, family: Family, x: torch.Tensor, packing: Packing) -> torch.Tensor:
    # Up to transformers 4.52 the encoder, later each layer by itself, computes again in the backward pass what it does not keep.
    holder = _holder(model)
    checkpointing = model.training and getattr(holder, "gradient_checkpointing", False)
    for layer in family.layers(model):
        if checkpointing and not hasattr(layer, "gradient_checkpointing"):
            x = holder._gradient_checkpointing_func(layer.__call__, x, packing)
        else:
            x = layer(x, packing)
    return x


# ---- A model ----


def _is_usual(model: nn.Module, given: dict[str, Any]) -> bool:
    """Whether a call asks for nothing but what the packed way gives."""
    others = sorted(name for name, value in given.items() if name not in TAKEN and value is not None and value is not False)
    if others:
        say_once(f"{type(model).__name__} runs transformers' own code, slower: it was given {', '.join(others)}")
        return False
    config = model.config
    if config.output_attentions or config.output_hidden_states or "input_ids" not in given or given["input_ids"].dim() != 2:
        return False
    # The model may have been moved since.
    weight = model.get_input_embeddings().weight
    if transforms.are_active() or not _is_ours(weight) or given["input_ids"].device.type != "cpu":
        return False
    return precision.autocast_fits()


def why_padded(model: nn.Module, family: Family, mask: torch.Tensor | None = None) -> str | None:
    """Why a usual call goes to transformers' own code all the same, for a line that is told once."""
    roots = tuple(name for name in ("embeddings", "embeddings_project", "encoder", "transformer") if name in model._modules)
    if reason := foreign.why_foreign(model, roots, f"transformers.models.{family.name}."):
        return f"{reason}: it may want to see padded batches"
    if odd := layers.odd_part(family.bypassed(model)):
        return f"{odd} must be called"
    if mask is not None and mask.shape[1] and (mask.any(1) & ~mask[:, 0].bool()).any():
        return "the first place of a sequence is padding, and many heads read it there; pad on the right"
    return None


def _packing(model: nn.Module, family: Family, given: dict[str, Any]) -> Packing | None:
    """How a call's tokens are packed; None: transformers' own code takes it."""
    if not _is_usual(model, given):
        return None
    packing = packing_of(given["input_ids"].shape, given.get("attention_mask"))
    if packing is not None and (reason := why_padded(model, family, given.get("attention_mask"))):
        say_once(f"{type(model).__name__} runs transformers' own code, slower: {reason}")
        return None
    return packing


def _model_forward(original: Any, family: Family) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if MARK in vars(self):
            given = signature.bind(self, *args, **kwargs).arguments
            given.update(given.pop("kwargs", {}))
            given = {name: value for name, value in given.items() if value is not None}
            packing = _packing(self, family, given)
            if packing is not None:
                verify.once(self, original, args, kwargs, given.get("attention_mask"), lambda: _packed(self, family, given, packing))
                vars(self)[MARK] += 1
                return _packed(self, family, given, packing)
        return original(self, *args, **kwargs)

    return forward


def _packed(model: nn.Module, family: Family, given: dict[str, Any], packing: Packing) -> Any:
    import transformers.modeling_outputs

    embedded = family.embed(model, given["input_ids"], given, packing.pack)
    hidden = packing.unpack(_run_layers(model, family, embedded, packing))
    result = getattr(transformers.modeling_outputs, family.output)(last_hidden_state=hidden)
    pooler = getattr(model, "pooler", None)
    if pooler is not None:
        result["pooler_output"] = pooler(hidden)
    is_old = int(transformers.__version__.split(".")[0]) < 5
    as_dict = given.get("return_dict")
    if as_dict is None:
        # Up to transformers 4 a configuration for TorchScript asks for tuples, too.
        as_dict = model.config.use_return_dict if is_old else model.config.return_dict
    if as_dict:
        return result
    # Up to transformers 4 a model that was made without its pooler gives None in its place.
    without_pooler = is_old and hasattr(model, "pooler") and pooler is None
    return (hidden, None) if without_pooler else result.to_tuple()


# ---- Question answering ----


def _question_answering_forward(original: Any) -> Any:
    """transformers lets the padding take part in the softmax over a sequence's places. Packed, padding has no logits: here those places get the
    lowest number there is, and the loss is that of each sequence by itself."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        call = signature.bind(self, *args, **kwargs)
        given = call.arguments
        mask, ids = given.get("attention_mask"), given.get("input_ids")
        if not hasattr(getattr(self, self.base_model_prefix), MARK) or mask is None or ids is None or mask.shape != ids.shape:
            return original(self, *args, **kwargs)
        starts, ends = given.pop("start_positions", None), given.pop("end_positions", None)
        result = original(*call.args, **call.kwargs)
        present = mask.bool()
        start_logits, end_logits = (logits.masked_fill(~present, torch.finfo(logits.dtype).min) for logits in result[:2])
        loss = None
        if starts is not None and ends is not None:
            loss = (_place_loss(start_logits, starts, present) + _place_loss(end_logits, ends, present)) / 2
        if isinstance(result, tuple):
            return (*(() if loss is None else (loss,)), start_logits, end_logits, *result[2:])
        return type(result)(**{**result, "loss": loss, "start_logits": start_logits, "end_logits": end_logits})

    return forward


def _place_loss(logits: torch.Tensor, places: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
    """As transformers has it: [batch] or [batch, 1], and places outside of the batch do not count. Nor do those of padding, which have no
    logits. In float32, whatever the logits are."""
    batch, length = logits.shape
    places = places.reshape(batch, 1).clamp(0, length)
    counted = nn.functional.pad(present, (0, 1)).gather(1, places)
    return nn.functional.cross_entropy(logits.float(), places.where(counted, length).flatten(), ignore_index=length)
