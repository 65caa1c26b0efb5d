"""One encoder layer on packed tokens: fused where its parts are what they seem, else module by module."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from trireme import ops
from trireme._optimize.packing import Packing


@dataclasses.dataclass(frozen=True)
class EncoderLayer:
    """The parts of a post-norm encoder layer, as a family names them. `attention_end` and `feed_forward` are how the layer itself computes
    its halves; they serve where a part is not plain. The containers are modules that a fused half does not call."""

    heads: int
    query: nn.Module
    key: nn.Module
    value: nn.Module
    attention_dropout: nn.Module
    output: nn.Module
    output_dropout: nn.Module | None
    attention_norm: nn.Module
    attention_containers: tuple[nn.Module, ...]
    inner: nn.Module
    activation: object
    outer: nn.Module
    outer_dropout: nn.Module
    outer_norm: nn.Module
    feed_forward_containers: tuple[nn.Module, ...]
    attention_end: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    feed_forward: Callable[[torch.Tensor], torch.Tensor]


# Where transformers 5 was asked for hidden states once, it leaves hooks on the modules; they do nothing in a call that does not ask.
IDLE_HOOKS = "transformers.utils.output_capturing"


def origin_of(thing: Any) -> str:
    """The Python module that a class or function is from."""
    while isinstance(thing, functools.partial):
        thing = thing.func
    return getattr(thing, "__module__", None) or ""


def hooks_of(module: nn.Module) -> list[Any]:
    kinds = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return [hook for hooks in kinds for hook in hooks.values() if origin_of(hook) != IDLE_HOOKS]


def has_hooks(module: nn.Module) -> bool:
    """Whether calling it does more than its forward, or its forward is not its class's."""
    return "forward" in module.__dict__ or bool(hooks_of(module))


def is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """A module whose forward is known and whose parameters may be read directly: no subclass, adapter, hook or parametrization."""
    return type(module) is kind and not has_hooks(module) and not hasattr(module, "parametrizations")


def is_plain_linear(module: nn.Module) -> bool:
    return is_plain(module, nn.Linear) and module.bias is not None


def is_plain_layer_norm(module: nn.Module) -> bool:
    """Over rows, with both of its parameters."""
    return is_plain(module, nn.LayerNorm) and len(module.normalized_shape) == 1 and module.weight is not None and module.bias is not None


def is_plain_dropout(module: nn.Module) -> bool:
    """nn.Identity is what people put in its place to be rid of it."""
    return is_plain(module, nn.Dropout) or is_plain(module, nn.Identity)


def is_plain_container(module: nn.Module) -> bool:
    return type(module).__module__.startswith("transformers.models.") and not has_hooks(module)


def is_plain_gelu(activation: object) -> bool:
    return gelu_form(activation) is not None and not (isinstance(activation, nn.Module) and has_hooks(activation))


def dropout_of(module: nn.Module | None) -> float:
    return module.p if isinstance(module, nn.Dropout) and module.training else 0.0


def is_plain_embedding(module: nn.Module) -> bool:
    """One that only looks rows up, and gives its table a dense gradient."""
    return is_plain(module, nn.Embedding) and module.max_norm is None and not module.scale_grad_by_freq and not module.sparse


def padding_of(module: nn.Embedding) -> int:
    return -1 if module.padding_idx is None else module.padding_idx


def gelu_form(activation: object) -> bool | None:
    """False for the exact GELU, True for the tanh form, None for anything else."""
    if isinstance(activation, nn.GELU):
        return activation.approximate == "tanh"
    if activation is nn.functional.gelu:
        return False
    return {"GELUActivation": False, "NewGELUActivation": True, "GELUTanh": True, "PytorchGELUTanh": True, "FastGELUActivation": True}.get(
        type(activation).__name__
    )


def fused_embeddings(embeddings: nn.Module, ids: torch.Tensor, positions: torch.Tensor, types: torch.Tensor | None = None) -> torch.Tensor | None:
    """LayerNorm and dropout of the sum of the embeddings in BERT's names; of types, only if there are any. None where a part is not plain."""
    tables = [embeddings.word_embeddings, embeddings.position_embeddings]
    if types is not None:
        tables.append(embeddings.token_type_embeddings)
    norm, dropout = embeddings.LayerNorm, embeddings.dropout
    if not (all(map(is_plain_embedding, tables)) and is_plain_layer_norm(norm) and is_plain_dropout(dropout)):
        return None
    word, position, *rest = tables
    kind = rest[0] if rest else None
    return ops.embedding(
        ids,
        word.weight,
        positions,
        position.weight,
        types,
        None if kind is None else kind.weight,
        norm.weight,
        norm.bias,
        dropout_of(dropout),
        norm.eps,
        padding_of(word),
        padding_of(position),
        -1 if kind is None else padding_of(kind),
    )


def parameters_of(modules: tuple[nn.Module, ...]) -> list[torch.Tensor]:
    return [parameter for module in modules for parameter in (module.weight, module.bias)]


Checks = Iterator[tuple[str, Any, Callable[[Any], bool]]]  # the name of a part, the part, and what it must be


def attention_checks(layer: EncoderLayer) -> Checks:
    for name in ("query", "key", "value", "output"):
        yield name, getattr(layer, name), is_plain_linear
    yield "query", layer.query, lambda query: query.out_features == query.in_features  # no head was pruned
    yield "attention_norm", layer.attention_norm, is_plain_layer_norm
    if layer.output_dropout is not None:
        yield "output_dropout", layer.output_dropout, is_plain_dropout
    for container in layer.attention_containers:
        yield "container", container, is_plain_container


def feed_forward_checks(layer: EncoderLayer) -> Checks:
    yield "inner", layer.inner, is_plain_linear
    yield "activation", layer.activation, is_plain_gelu
    yield "outer", layer.outer, is_plain_linear
    yield "outer_dropout", layer.outer_dropout, is_plain_dropout
    yield "outer_norm", layer.outer_norm, is_plain_layer_norm
    for container in layer.feed_forward_containers:
        yield "container", container, is_plain_container


def odd_part(checks: Checks) -> str | None:
    """The first part that keeps a half from being fused, for a report."""
    for name, part, is_plain_part in checks:
        if not is_plain_part(part):
            return f"{name} ({type(part).__module__}.{type(part).__name__})"
    return None


def self_attention(layer: EncoderLayer, x: torch.Tensor, packing: Packing) -> torch.Tensor:
    attention_dropout = dropout_of(layer.attention_dropout)
    if odd_part(attention_checks(layer)) is None:
        weights = parameters_of((layer.query, layer.key, layer.value, layer.output, layer.attention_norm))
        return ops.self_attention_block(
            x, weights, packing.cu_seqlens, layer.heads, attention_dropout, dropout_of(layer.output_dropout), layer.attention_norm.eps
        )
    tokens = x.shape[0]
    q, k, v = (module(x).view(tokens, layer.heads, -1) for module in (layer.query, layer.key, layer.value))
    context = ops.attention(q, k, v, packing.cu_seqlens, scale=q.shape[2] ** -0.5, dropout_p=attention_dropout)
    return layer.attention_end(context.reshape(tokens, -1), x)


def feed_forward(layer: EncoderLayer, x: torch.Tensor) -> torch.Tensor:
    if odd_part(feed_forward_checks(layer)) is None:
        weights = parameters_of((layer.inner, layer.outer, layer.outer_norm))
        return ops.feed_forward_block(x, weights, gelu_form(layer.activation), dropout_of(layer.outer_dropout), layer.outer_norm.eps)
    return layer.feed_forward(x)


def forward(layer: EncoderLayer, x: torch.Tensor, packing: Packing) -> torch.Tensor:
    return feed_forward(layer, self_attention(layer, x, packing))
