"""Ways to call an optimized encoder: what is asked for is given, packed or by transformers' own code, and is right."""

import concurrent.futures
import inspect
import sys

import pytest

from .models import FAMILIES, HIDDEN, LENGTHS, PREFIXES, VERSION, assert_close, assert_same_training, batch, clone, make, torch
from .models import train_once, transformers
from .pairs import assert_same_tokens, pair, tokens

import trireme
from trireme._optimize import encoders, layers, report

# ---- Masks ----


def with_holes(mask):
    mask = mask.clone()
    mask[0, 3] = mask[3, 1] = 0
    return mask


def without_a_row(mask):
    mask = mask.clone()
    mask[2] = 0
    return mask


MASKS = {
    "int64": lambda mask: mask,
    "bool": lambda mask: mask.bool(),
    "float": lambda mask: mask.float(),
    "int32": lambda mask: mask.int(),
    "left": lambda mask: mask.flip(1),
    "holes": with_holes,
    "no row": without_a_row,
}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("family", FAMILIES)
def test_mask(family, kind, packed):
    ours, theirs = pair(family)
    inputs = batch()
    inputs["attention_mask"] = MASKS[kind](inputs["attention_mask"])
    # transformers negates masks in its own ways: it is asked with the one form that it always takes
    expected = theirs(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"].long())[0]
    result = ours(**inputs)[0]
    assert bool(packed) == (kind != "left")  # the first place, which heads read, is padding there
    assert_close(tokens(result, inputs["attention_mask"]), tokens(expected, inputs["attention_mask"]))
    if not packed:
        assert_close(result[:, 0], expected[:, 0])


@pytest.mark.parametrize("family", FAMILIES)
def test_no_mask(family, packed):
    ours, theirs = pair(family)
    ids = batch(lengths=(9, 9))["input_ids"]
    assert_close(ours(ids)[0], theirs(ids)[0])
    assert packed


def test_nothing_but_padding(packed):
    ours, _ = pair()
    inputs = batch()
    inputs["attention_mask"].zero_()
    assert ours(**inputs)[0].shape == (len(LENGTHS), max(LENGTHS), HIDDEN)
    assert not packed


@pytest.mark.parametrize("kind", ["mask of attention", "embeddings", "hidden states", "attentions"])
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_what_is_not_packed(family, kind, packed):
    ours, theirs = pair(family, attn_implementation="eager")  # transformers gives attentions only with eager
    inputs = batch()
    if kind == "embeddings":
        inputs["inputs_embeds"] = torch.randn(*inputs.pop("input_ids").shape, HIDDEN)
    elif kind == "hidden states":
        inputs["output_hidden_states"] = True
    elif kind == "attentions":
        inputs["output_attentions"] = True
    else:
        if family == "distilbert":
            pytest.skip("DistilBERT takes no such mask")
        inputs["attention_mask"] = inputs["attention_mask"][:, None].expand(-1, max(LENGTHS), -1)
        if VERSION >= (5, 0):  # which adds it to the scores as it is
            inputs["attention_mask"] = (1.0 - inputs["attention_mask"][:, None]) * torch.finfo(torch.float32).min
    our, their = ours(**inputs), theirs(**inputs)
    assert not packed
    assert our.keys() == their.keys()
    assert torch.equal(our[0], their[0])
    for name in ("hidden_states", "attentions"):
        if name in their:
            assert all(torch.equal(a, b) for a, b in zip(our[name], their[name], strict=True))


def test_packed_again_after_hidden_states(packed):
    """transformers 5 leaves hooks on the modules from then on."""
    ours, theirs = pair()
    ours(**batch(), output_hidden_states=True)
    assert not packed
    assert_same_tokens(ours, theirs, batch())
    assert packed


@pytest.mark.skipif(VERSION >= (5, 0), reason="transformers 5 has no head_mask")
def test_head_mask(packed):
    ours, theirs = pair(attn_implementation="eager")
    inputs = {**batch(), "head_mask": torch.tensor([1.0, 0, 1, 1])}
    assert torch.equal(ours(**inputs)[0], theirs(**inputs)[0])
    assert not packed


def test_decoder_is_left(packed, capfd):
    ours, theirs = pair(is_decoder=True)
    assert "it is a decoder" in capfd.readouterr().err
    inputs = batch()
    assert_same_tokens(ours, theirs, inputs)
    assert not packed


def test_a_causal_configuration_is_left(packed, capfd):
    ours, theirs = pair(is_causal=True)
    assert "its configuration says is_causal" in capfd.readouterr().err
    assert_same_tokens(ours, theirs, batch())
    assert not packed


def test_tuple(packed):
    ours, theirs = pair()
    our, their = ours(**batch(), return_dict=False), theirs(**batch(), return_dict=False)
    assert type(our) is type(their) is tuple and packed
    assert len(our) == len(their)
    assert_close(our[1], their[1])


@pytest.mark.parametrize("pooled", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_tuples_are_as_long(family, pooled, packed):
    if family in ("electra", "distilbert"):
        ours, theirs = pair(family)
    else:
        torch.manual_seed(0)
        theirs = getattr(transformers, f"{PREFIXES[family]}Model")(make(family).config, add_pooling_layer=pooled)
        ours = trireme.optimize(clone(theirs))
    our, their = ours(**batch(), return_dict=False), theirs(**batch(), return_dict=False)
    assert packed
    assert [x is None for x in our] == [x is None for x in their]
    assert ours(**batch()).keys() == theirs(**batch()).keys()


@pytest.mark.parametrize("option", [{"torchscript": True}, {"return_dict": False}], ids=["torchscript", "return_dict"])
@pytest.mark.parametrize("family", FAMILIES)
def test_tuples_by_configuration(family, option, packed):
    """transformers 5 knows nothing of torchscript."""
    ours, theirs = pair(family, **option)
    our, their = ours(**batch()), theirs(**batch())
    assert type(our) is type(their) and len(our) == len(their) and packed


@pytest.mark.parametrize("shared", [False, True], ids=["of each", "shared"])
def test_positions_and_types(shared, packed):
    ours, theirs = pair()
    types = batch(seed=2)["input_ids"] % 2
    inputs = {**batch(), "token_type_ids": types[:1] if shared else types, "position_ids": torch.arange(max(LENGTHS)).flip(0)[None]}
    assert_same_tokens(ours, theirs, inputs)
    assert packed


def takes_anything(family, head):
    return "kwargs" in inspect.signature(getattr(transformers, PREFIXES[family] + head).forward).parameters


TRAINED = ("ForSequenceClassification", "ForQuestionAnswering", "ForMaskedLM", "ForTokenClassification")


@pytest.mark.parametrize(("family", "head"), [(family, head) for family in FAMILIES for head in TRAINED if takes_anything(family, head)])
def test_what_a_trainer_hands_on(family, head, packed, capfd):
    """transformers 5's gives a model the number of its labels, which reaches the encoder where the head's forward takes anything."""
    ours, theirs = pair(family, head)
    inputs = {**batch(), "num_items_in_batch": torch.tensor(4)}
    if head == "ForQuestionAnswering":
        inputs |= {"start_positions": torch.zeros(len(LENGTHS), dtype=torch.long), "end_positions": torch.zeros(len(LENGTHS), dtype=torch.long)}
    else:
        inputs["labels"] = torch.arange(len(LENGTHS)) % 2 if head == "ForSequenceClassification" else torch.where(batch()["attention_mask"].bool(), 1, -100)
    result = train_once(ours, inputs)
    assert packed
    if head != "ForQuestionAnswering":  # whose loss is another, see test_heads.py
        assert_same_training(result, train_once(theirs, inputs))
    assert "runs transformers' own code" not in capfd.readouterr().err


def test_an_argument_that_is_not_packed_is_named(packed, capfd):
    ours, _ = pair()
    report.say_once.cache_clear()
    for _ in range(2):
        ours(**batch(), output_hidden_states=True)
    assert capfd.readouterr().err.count("BertModel runs transformers' own code, slower: it was given output_hidden_states") == 1
    assert not packed


def test_packed_calls_are_counted(packed):
    ours, _ = pair()
    ours(**batch())
    ours(**batch(), output_hidden_states=True)
    ours(**batch())
    trireme.optimize(ours)
    assert vars(ours)[encoders.MARK] == len(packed) == 2


# ---- Dropout, evaluation, checkpointing ----


@pytest.mark.parametrize("family", FAMILIES)
def test_evaluation(family, packed):
    ours, theirs = pair(family, dropout=0.3)
    with torch.no_grad():
        assert_same_tokens(ours.eval(), theirs.eval(), batch())
    assert packed


def test_dropout_follows_the_seed():
    model = trireme.optimize(make("bert", dropout=0.3))
    first, again, other = (train_once(model, batch(), seed)[0] for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradient_checkpointing(family, dropout, reentrant, packed, monkeypatch):
    """The same bits as without: what is computed again is drawn again."""
    model = trireme.optimize(make(family, "ForSequenceClassification", dropout=dropout))
    inputs = {**batch(), "labels": torch.arange(len(LENGTHS)) % 2}
    if reentrant or VERSION >= (5, 0):  # which does it by itself
        model.enable_input_require_grads()  # by a hook, so that embeddings are not fused: before both
    kept = train_once(model, inputs)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    calls, real = [], layers.forward
    monkeypatch.setattr(layers, "forward", lambda *args: calls.append(1) or real(*args))
    recomputed = train_once(model, inputs)
    assert len(calls) == 4, "each of two layers runs forward twice"
    assert_same_training(recomputed, kept, 0.0)
    assert len(packed) == 2


# ---- Question answering ----


def test_question_answering_in_threads():
    """One model, calls side by side: each is answered for its own mask."""
    model = trireme.optimize(make("bert", "ForQuestionAnswering")).eval()
    batches = [batch(), batch(lengths=(12, 12, 3, 2), seed=2)]
    with torch.no_grad():
        expected = [model(**inputs).start_logits for inputs in batches]
    wrong = []

    def ask(which):
        with torch.no_grad():
            for _ in range(100):
                if not torch.allclose(model(**batches[which]).start_logits, expected[which], atol=1e-4):
                    wrong.append(which)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(ask, range(2)))
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


@pytest.mark.parametrize("as_dict", [True, False])
@pytest.mark.parametrize("labels", [True, False])
def test_question_answering_gives_what_transformers_gives(as_dict, labels):
    ours, theirs = pair("bert", "ForQuestionAnswering")
    inputs = batch(lengths=(12, 12, 12, 12))
    if labels:
        inputs |= {"start_positions": torch.tensor([[1], [2], [3], [40]]), "end_positions": torch.tensor([[1], [2], [3], [4]])}
    our, their = (model(**inputs, return_dict=as_dict) for model in (ours, theirs))
    assert type(our) is type(their) and len(our) == len(their) == (3 if labels else 2)
    for a, b in zip(our if not as_dict else our.values(), their if not as_dict else their.values(), strict=True):
        assert_close(a, b)
