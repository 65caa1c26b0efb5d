"""One encoder layer on packed tokens: fused where its parts are what they seem, else module by module."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import nn

from trireme import ops
from trireme._optimize.packing import Packing


@dataclasses.dataclass(frozen=True)
class EncoderLayer:
    """The parts of a post-norm encoder layer, as a family names them. `attention_end` and `feed_forward` are how the layer itself computes
    its halves; they serve where a part is not plain."""

    heads: int
    query: nn.Module
    key: nn.Module
    value: nn.Module
    attention_dropout: float
    output: nn.Module
    output_dropout: float
    attention_norm: nn.Module
    inner: nn.Module
    activation: object
    outer: nn.Module
    outer_dropout: float
    outer_norm: nn.Module
    attention_end: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    feed_forward: Callable[[torch.Tensor], torch.Tensor]


def has_hooks(module: nn.Module) -> bool:
    """Whether calling it does more than its forward, or its forward is not its class's."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in module.__dict__
    )


def is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """A module whose forward is known and whose parameters may be read directly: no subclass, adapter, hook or parametrization."""
    return type(module) is kind and not has_hooks(module) and not hasattr(module, "parametrizations")


def is_plain_linear(module: nn.Module) -> bool:
    return is_plain(module, nn.Linear) and module.bias is not None


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
    if not (all(map(is_plain_embedding, tables)) and is_plain(norm, nn.LayerNorm) and is_plain(dropout, nn.Dropout)):
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
        dropout.p if dropout.training else 0.0,
        norm.eps,
        padding_of(word),
        padding_of(position),
        -1 if kind is None else padding_of(kind),
    )


def parameters_of(modules: tuple[nn.Module, ...]) -> list[torch.Tensor]:
    return [parameter for module in modules for parameter in (module.weight, module.bias)]


def self_attention(layer: EncoderLayer, x: torch.Tensor, packing: Packing) -> torch.Tensor:
    dense = (layer.query, layer.key, layer.value, layer.output)
    if all(map(is_plain_linear, dense)) and is_plain(layer.attention_norm, nn.LayerNorm) and x.shape[1] == layer.query.out_features:
        weights = parameters_of((*dense, layer.attention_norm))
        return ops.self_attention_block(
            x, weights, packing.cu_seqlens, layer.heads, layer.attention_dropout, layer.output_dropout, layer.attention_norm.eps
        )
    tokens = x.shape[0]
    q, k, v = (module(x).view(tokens, layer.heads, -1) for module in (layer.query, layer.key, layer.value))
    context = ops.attention(q, k, v, packing.cu_seqlens, scale=q.shape[2] ** -0.5, dropout_p=layer.attention_dropout)
    return layer.attention_end(context.reshape(tokens, -1), x)


def feed_forward(layer: EncoderLayer, x: torch.Tensor) -> torch.Tensor:
    tanh = gelu_form(layer.activation)
    if tanh is not None and is_plain_linear(layer.inner) and is_plain_linear(layer.outer) and is_plain(layer.outer_norm, nn.LayerNorm):
        weights = parameters_of((layer.inner, layer.outer, layer.outer_norm))
        return ops.feed_forward_block(x, weights, tanh, layer.outer_dropout, layer.outer_norm.eps)
    return layer.feed_forward(x)


def forward(layer: EncoderLayer, x: torch.Tensor, packing: Packing) -> torch.Tensor:
    return feed_forward(layer, self_attention(layer, x, packing))
