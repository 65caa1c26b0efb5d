"""The embeddings of transformers' encoders, fused where their parts are plain, against their own code."""

import pytest
import torch
from torch import nn

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from trireme import ops  # noqa: E402
from trireme._optimize.families import FAMILIES  # noqa: E402

from .reference import assert_close, bound  # noqa: E402

SMALL = dict(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_position_embeddings=20)
FAMILY = {family.name: family for family in FAMILIES}
NAMES = ["bert", "roberta", "xlm_roberta", "electra", "distilbert"]


def model_of(name: str) -> nn.Module:
    torch.manual_seed(1)
    if name == "distilbert":
        config = transformers.DistilBertConfig(vocab_size=50, dim=16, n_layers=1, n_heads=2, hidden_dim=16, max_position_embeddings=20)
    else:
        config = {
            "bert": transformers.BertConfig,
            "roberta": transformers.RobertaConfig,
            "xlm_roberta": transformers.XLMRobertaConfig,
            "electra": transformers.ElectraConfig,
        }[name](**SMALL, **({"embedding_size": 16} if name == "electra" else {}))
    return transformers.AutoModel.from_config(config)


def batch_of(model: nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids with padding at the end, and inside, where it counts as a token."""
    torch.manual_seed(2)
    ids = torch.randint(3, 50, (3, 9))
    ids[0, 3] = ids[1, 6:] = model.config.pad_token_id
    return ids, torch.arange(9) < torch.tensor([[9], [6], [8]])


def embed(model: nn.Module, name: str, **given: torch.Tensor) -> torch.Tensor:
    ids, present = batch_of(model)
    return FAMILY[name].embed(model, ids, given, lambda x: x[present])


def gradients(model: nn.Module, y: torch.Tensor) -> dict[str, torch.Tensor]:
    model.zero_grad()
    y.backward(torch.linspace(-1, 1, y.numel()).sin().view(y.shape))
    return {name: parameter.grad.to_dense().clone() for name, parameter in model.embeddings.named_parameters()}


@pytest.fixture
def fused(monkeypatch) -> list:
    """The calls of the operator."""
    calls, original = [], ops.embedding
    monkeypatch.setattr(ops, "embedding", lambda *args: calls.append(args) or original(*args))
    return calls


@pytest.mark.parametrize("name", NAMES)
def test_is_the_models_own(name, fused):
    model = model_of(name).eval()
    ids, present = batch_of(model)
    y = embed(model, name)
    assert len(fused) == 1
    expected = model.embeddings(ids)[present]
    assert_close(y, expected, bound(torch.float32, 16 + 23), "y")
    ours, theirs = gradients(model, y), gradients(model, expected)
    assert ours.keys() == theirs.keys()
    for each, gradient in ours.items():
        assert_close(gradient, theirs[each], bound(torch.float32, 16 + 23), each)
    assert not ours["word_embeddings.weight"][model.config.pad_token_id].any()


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_types_and_positions_that_are_given(name, fused):
    model = model_of(name).eval()
    ids, present = batch_of(model)
    types = torch.zeros_like(ids) if name == "roberta" else torch.arange(9).expand(3, 9) % 2
    positions = torch.arange(9).flip(0)[None] + 4
    y = embed(model, name, token_type_ids=types, position_ids=positions)
    assert_close(y, model.embeddings(ids, token_type_ids=types, position_ids=positions)[present], bound(torch.float32, 16), "y")
    assert len(fused) == 1


def test_dropout_only_in_training(fused):
    model = model_of("bert")
    assert (embed(model.train(), "bert") == 0).any() and not (embed(model.eval(), "bert") == 0).any()
    assert [call[8] for call in fused] == [0.1, 0.0]


class OtherEmbedding(nn.Embedding):
    pass


class OtherDropout(nn.Dropout):
    pass


def replace(model: nn.Module, **options) -> None:
    old = model.embeddings.word_embeddings
    new = options.pop("kind", nn.Embedding)(*old.weight.shape, padding_idx=old.padding_idx, **options)
    new.weight = old.weight
    model.embeddings.word_embeddings = new


SPOILED = {
    "max_norm": lambda model: replace(model, max_norm=3.0),
    "scale_grad_by_freq": lambda model: replace(model, scale_grad_by_freq=True),
    "sparse": lambda model: replace(model, sparse=True),
    "subclass": lambda model: replace(model, kind=OtherEmbedding),
    "table_hook": lambda model: model.embeddings.position_embeddings.register_forward_hook(lambda *args: None),
    "norm_hook": lambda model: model.embeddings.LayerNorm.register_forward_pre_hook(lambda *args: None),
    "dropout_class": lambda model: setattr(model.embeddings, "dropout", OtherDropout(0.1).eval()),
}


@pytest.mark.parametrize("spoil", SPOILED)
@pytest.mark.parametrize("name", ["bert", "distilbert"])
def test_what_is_not_plain_is_called_itself(name, spoil, fused):
    model = model_of(name).eval()
    ids, present = batch_of(model)
    SPOILED[spoil](model)
    y = embed(model, name)
    assert not fused
    assert_close(y, model.embeddings(ids)[present], bound(torch.float32, 16), "y")
    gradients(model, y)


def test_no_dropout_at_all(fused):
    model = model_of("bert").train()
    model.embeddings.dropout = nn.Identity()
    assert not (embed(model, "bert") == 0).any() and [call[8] for call in fused] == [0.0]


def test_a_hook_on_all_of_the_embeddings_is_called(fused):
    model, seen = model_of("bert").eval(), []
    model.embeddings.register_forward_hook(lambda *args: seen.append(1))
    embed(model, "bert")
    assert seen and not fused
