"""The encoders of transformers that run packed and fused, and how each names its parts."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable

import torch
from torch import nn

from trireme._optimize.layers import Checks, EncoderLayer, fused_embeddings, is_plain_container, is_plain_dropout


def bert_layer(layer: nn.Module) -> EncoderLayer:
    attention, end = layer.attention.self, layer.attention.output
    return EncoderLayer(
        heads=attention.num_attention_heads,
        query=attention.query,
        key=attention.key,
        value=attention.value,
        attention_dropout=attention.dropout,
        output=end.dense,
        output_dropout=end.dropout,
        attention_norm=end.LayerNorm,
        attention_containers=(end,),
        inner=layer.intermediate.dense,
        activation=layer.intermediate.intermediate_act_fn,
        outer=layer.output.dense,
        outer_dropout=layer.output.dropout,
        outer_norm=layer.output.LayerNorm,
        feed_forward_containers=(layer.intermediate, layer.output),
        attention_end=end,
        feed_forward=lambda x: layer.output(layer.intermediate(x), x),
    )


def distilbert_layer(layer: nn.Module) -> EncoderLayer:
    attention, ffn = layer.attention, layer.ffn
    return EncoderLayer(
        heads=attention.n_heads,
        query=attention.q_lin,
        key=attention.k_lin,
        value=attention.v_lin,
        attention_dropout=attention.dropout,
        output=attention.out_lin,
        output_dropout=None,
        attention_norm=layer.sa_layer_norm,
        attention_containers=(),
        inner=ffn.lin1,
        activation=ffn.activation,
        outer=ffn.lin2,
        outer_dropout=ffn.dropout,
        outer_norm=layer.output_layer_norm,
        feed_forward_containers=(ffn,),
        attention_end=lambda context, x: layer.sa_layer_norm(attention.out_lin(context) + x),
        feed_forward=lambda x: layer.output_layer_norm(ffn(x) + x),
    )


# Modules that are never called on packed tokens, and what they must be so that nobody misses it.


def bypassed_in_bert(model: nn.Module) -> Checks:
    yield "encoder", model.encoder, is_plain_container
    for layer in model.encoder.layer:
        attention = layer.attention
        yield "attention", attention, is_plain_container
        yield "attention.self", attention.self, is_plain_container
        yield "attention.self.dropout", attention.self.dropout, is_plain_dropout


def bypassed_in_distilbert(model: nn.Module) -> Checks:
    yield "embeddings", model.embeddings, is_plain_container
    yield "transformer", model.transformer, is_plain_container
    for layer in model.transformer.layer:
        yield "attention", layer.attention, is_plain_container
        yield "attention.dropout", layer.attention.dropout, is_plain_dropout


def places(ids: torch.Tensor) -> torch.Tensor:
    """0, 1, 2, ... in every sequence of a padded batch."""
    return torch.arange(ids.shape[1]).expand(ids.shape)


def embed_bert(model: nn.Module, ids: torch.Tensor, given: dict[str, torch.Tensor], pack: Callable) -> torch.Tensor:
    types = given.get("token_type_ids", torch.zeros_like(ids)).expand(ids.shape)
    positions = given.get("position_ids", places(ids)).expand(ids.shape)
    embeddings = model.embeddings
    x = None
    if is_plain_container(embeddings):
        x = fused_embeddings(embeddings, pack(ids), pack(positions), pack(types))
    if x is None:
        x = embeddings(input_ids=pack(ids)[None], token_type_ids=pack(types)[None], position_ids=pack(positions)[None])[0]
    project = getattr(model, "embeddings_project", None)  # ELECTRA's, where the embeddings are narrower than the layers
    return x if project is None else project(x)


def embed_roberta(model: nn.Module, ids: torch.Tensor, given: dict[str, torch.Tensor], pack: Callable) -> torch.Tensor:
    if "position_ids" not in given:
        # RoBERTa counts the tokens that are not padding, from padding_idx + 1 on.
        padding = model.embeddings.padding_idx
        is_token = ids.ne(padding).long()
        given = {**given, "position_ids": is_token.cumsum(1) * is_token + padding}
    return embed_bert(model, ids, given, pack)


def embed_distilbert(model: nn.Module, ids: torch.Tensor, given: dict[str, torch.Tensor], pack: Callable) -> torch.Tensor:
    # Up to transformers 4 this module takes no positions: it knows its own, and they are those of its input.
    embeddings = model.embeddings
    positions = given.get("position_ids", places(ids)).expand(ids.shape)
    x = fused_embeddings(embeddings, pack(ids), pack(positions))
    if x is None:
        x = embeddings.word_embeddings(pack(ids)) + embeddings.position_embeddings(pack(positions))
        x = embeddings.dropout(embeddings.LayerNorm(x))
    return x


@dataclasses.dataclass(frozen=True)
class Family:
    name: str
    prefix: str  # of the classes' names
    layer_class: str
    layer: Callable[[nn.Module], EncoderLayer]
    layers: Callable[[nn.Module], nn.ModuleList]
    bypassed: Callable[[nn.Module], Checks]
    embed: Callable[[nn.Module, torch.Tensor, dict[str, torch.Tensor], Callable], torch.Tensor]
    output: str = "BaseModelOutputWithPoolingAndCrossAttentions"

    def classes(self) -> tuple[type, type, type | None]:
        """The model, its layer, and its head for question answering."""
        module = importlib.import_module(f"transformers.models.{self.name}.modeling_{self.name}")
        question_answering = getattr(module, f"{self.prefix}ForQuestionAnswering", None)
        return getattr(module, f"{self.prefix}Model"), getattr(module, self.layer_class), question_answering


def _like_bert(name: str, prefix: str, embed: Callable, **others: str) -> Family:
    return Family(name, prefix, f"{prefix}Layer", bert_layer, lambda model: model.encoder.layer, bypassed_in_bert, embed, **others)


FAMILIES = (
    _like_bert("bert", "Bert", embed_bert),
    _like_bert("roberta", "Roberta", embed_roberta),
    _like_bert("xlm_roberta", "XLMRoberta", embed_roberta),
    _like_bert("electra", "Electra", embed_bert, output="BaseModelOutputWithPastAndCrossAttentions"),
    Family(
        "distilbert",
        "DistilBert",
        "TransformerBlock",
        distilbert_layer,
        lambda model: model.transformer.layer,
        bypassed_in_distilbert,
        embed_distilbert,
        "BaseModelOutput",
    ),
)
