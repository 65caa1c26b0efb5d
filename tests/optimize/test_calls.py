"""Ways to call, wrap, move and keep an optimized encoder: what is asked for is given, packed or by transformers' own code, and is right."""

import concurrent.futures
import copy
import inspect
import pickle
import sys

import pytest

from .models import FAMILIES, HIDDEN, LENGTHS, PREFIXES, TOLERANCE, VERSION, assert_close, assert_same_training, batch, clone, make, torch
from .models import train_once, transformers

import trireme
from trireme._optimize import encoders, layers, report


def pair(family="bert", name="Model", **options):
    theirs = make(family, name, **options)
    return trireme.optimize(clone(theirs)), theirs


def tokens(hidden, mask):
    return hidden[mask.bool()]


def assert_same_tokens(ours, theirs, inputs):
    for_ours, for_theirs = ours(**inputs)[0], theirs(**inputs)[0]
    assert_close(tokens(for_ours, inputs["attention_mask"]), tokens(for_theirs, inputs["attention_mask"]))


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


# ---- Wrapped models ----


def test_ddp(group, packed):
    ours, theirs = make("bert", "ForSequenceClassification"), make("bert", "ForSequenceClassification")
    wrapped = trireme.optimize(torch.nn.parallel.DistributedDataParallel(ours, find_unused_parameters=True))
    inputs = {**batch(), "labels": torch.arange(len(LENGTHS)) % 2}
    train_once(wrapped, inputs)
    result = train_once(wrapped, inputs)
    assert len(packed) == 2
    expected = train_once(theirs, inputs)
    assert_same_training((result[0], {name.removeprefix("module."): x for name, x in result[1].items()}), expected)


@pytest.mark.parametrize("first", ["optimized", "sharded"])
def test_fsdp(group, packed, first):
    from torch.distributed.fsdp import fully_shard

    theirs = make("bert", "ForSequenceClassification")
    ours = clone(theirs)
    if first == "optimized":
        trireme.optimize(ours)
    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    for module in (*ours.bert.encoder.layer, ours.bert, ours):
        fully_shard(module, mesh=mesh)
    if first == "sharded":
        trireme.optimize(ours)
    inputs = {**batch(), "labels": torch.arange(len(LENGTHS)) % 2}
    loss, grads = train_once(ours, inputs)
    assert packed
    assert_same_training((loss, {name: x.full_tensor() for name, x in grads.items()}), train_once(theirs, inputs))


@pytest.mark.parametrize("first", ["optimized", "compiled"])
def test_compiled(first, packed, capfd):
    """torch.compile gets transformers' own code."""
    theirs = make("bert")
    ours = clone(theirs)
    if first == "optimized":
        compiled = torch.compile(trireme.optimize(ours), backend="eager")
    else:
        compiled = trireme.optimize(torch.compile(ours, backend="eager"))
        assert "the model is compiled" in capfd.readouterr().err
    assert_same_tokens(compiled, theirs, batch())
    assert not packed
    assert_same_tokens(ours, theirs, batch())
    assert packed


@pytest.mark.parametrize("first", ["optimized", "adapted"])
def test_lora(first, packed):
    peft = pytest.importorskip("peft")

    def adapted(model):
        torch.manual_seed(5)
        config = peft.LoraConfig(target_modules=["query", "value"], r=4, lora_alpha=8, init_lora_weights=False)
        return peft.get_peft_model(model, config)

    theirs = adapted(make("bert", "ForSequenceClassification"))
    model = make("bert", "ForSequenceClassification")
    ours = adapted(trireme.optimize(model)) if first == "optimized" else trireme.optimize(adapted(model))
    inputs = {**batch(), "labels": torch.arange(len(LENGTHS)) % 2}
    result = train_once(ours, inputs)
    assert packed
    assert all("lora" in name for name in result[1])
    assert_same_training(result, train_once(theirs, inputs))
    ours.merge_and_unload()
    theirs.merge_and_unload()
    assert_close(ours(**inputs).logits, theirs(**inputs).logits)


# ---- What a user put into an encoder ----

HOOKED = {
    "bert": (
        "embeddings", "embeddings.word_embeddings", "encoder", "encoder.layer.0", "encoder.layer.0.attention", "encoder.layer.0.attention.output",
        "encoder.layer.0.intermediate", "encoder.layer.0.intermediate.intermediate_act_fn", "encoder.layer.0.output",
        "encoder.layer.0.output.dense", "encoder.layer.0.output.dropout", "encoder.layer.0.output.LayerNorm",
    ),
    "distilbert": (
        "embeddings", "transformer", "transformer.layer.0", "transformer.layer.0.attention", "transformer.layer.0.ffn",
        "transformer.layer.0.ffn.activation", "transformer.layer.0.ffn.dropout", "transformer.layer.0.sa_layer_norm",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("family", "path"), [(family, path) for family, paths in HOOKED.items() for path in paths])
def test_a_hook_sees_what_it_would_see_without_us(family, path, packed):
    seen = []
    for model in pair(family):

        def note(module, inputs, output):
            given, result = inputs[0] if inputs else None, output[0] if isinstance(output, (tuple, dict)) else output
            shapes.append([tuple(x.shape) for x in (given, result) if torch.is_tensor(x)])

        seen.append(shapes := [])
        hook = model.get_submodule(path).register_forward_hook(note)
        model(**batch())
        hook.remove()
        assert not packed
        model(**batch())
        assert bool(packed) == (len(seen) == 1)
        packed.clear()
    assert seen[0] == seen[1] != []


def test_a_hook_for_all_modules(packed):
    ours, _ = pair()
    calls = []
    hook = torch.nn.modules.module.register_module_forward_hook(lambda module, *_: calls.append(type(module).__name__))
    try:
        ours(**batch())
    finally:
        hook.remove()
    assert "BertIntermediate" in calls and not packed


def derived(module, forward):
    """The module, of a class that a user derived from its own."""
    module.__class__ = type("Mine", (type(module),), {"forward": forward, "__module__": "mine"})


def double_output(model, layer):
    part = layer.ffn if hasattr(layer, "ffn") else layer.output
    original = type(part).forward
    derived(part, lambda self, *args: 2 * original(self, *args))


def patch_inner(model, layer):
    part = layer.ffn if hasattr(layer, "ffn") else layer.intermediate
    original = part.forward
    part.forward = lambda x: 3 * original(x)


def replace_activation(model, layer):
    class GELUActivation(torch.nn.Module):  # the name of transformers'
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.full((4 * HIDDEN,), 0.5))

        def forward(self, x):
            return torch.nn.functional.gelu(x) * self.scale

    if hasattr(layer, "ffn"):
        layer.ffn.activation = GELUActivation()
    else:
        layer.intermediate.intermediate_act_fn = GELUActivation()


def mix_places(model, layer):
    """torch's own, but dimension 1 is places here, and features where tokens are packed."""
    if hasattr(layer, "ffn"):
        layer.ffn.activation = torch.nn.Softmax(dim=1)
    else:
        layer.intermediate.intermediate_act_fn = torch.nn.Softmax(dim=1)


def derive_layer(model, layer):
    original = type(layer).forward

    def forward(self, hidden_states, *args, **kwargs):
        assert hidden_states.dim() == 3
        return original(self, 2 * hidden_states, *args, **kwargs)

    derived(layer, forward)


def wrap_layer(model, layer):
    class Wrapped(torch.nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.layer = layer
            self.attention = layer.attention
            self.attention_type = "full_attention"  # some versions of transformers look at it

        def forward(self, hidden_states, *args, **kwargs):
            assert hidden_states.dim() == 3
            return self.layer(2 * hidden_states, *args, **kwargs)

    found = model.transformer.layer if hasattr(model, "transformer") else model.encoder.layer
    found[0] = Wrapped(layer)


def scale_places(model, layer):
    original = type(model.embeddings).forward
    derived(model.embeddings, lambda self, *args, **kwargs: 2 * original(self, *args, **kwargs))


@pytest.mark.parametrize("change", [double_output, patch_inner, replace_activation, mix_places, derive_layer, wrap_layer, scale_places])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("first", ["optimized", "changed"])
def test_what_is_not_transformers_own_is_not_passed_by(first, family, change, packed, capfd):
    ours, theirs = make(family), make(family)
    if first == "optimized":
        trireme.optimize(ours)
    for model in (ours, theirs):
        change(model, encoders.family_of(model).layers(model)[0])
    if first == "changed":
        trireme.optimize(ours)
        assert "runs transformers' own code, slower: " in capfd.readouterr().err
    present = batch()["attention_mask"].bool()
    results = []
    for model in (ours, theirs):
        hidden = model(**batch())[0][present]
        hidden.square().sum().backward()
        results.append((hidden, {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}))
    assert_same_training(*results)
    assert not packed


def test_dropout_replaced_by_identity(packed):
    ours = trireme.optimize(make("bert", dropout=0.3))
    for module in list(ours.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.Dropout):
                setattr(module, name, torch.nn.Identity())
    assert_same_tokens(ours, make("bert"), batch())
    assert packed


def test_report_of_an_activation(capfd):
    trireme.optimize(make("bert", hidden_act="relu"))
    assert "2 of 4 halves of layers are fused, not those with activation (torch.nn" in capfd.readouterr().err


def test_report_of_adapters(capfd):
    peft = pytest.importorskip("peft")
    trireme.optimize(peft.get_peft_model(make("bert"), peft.LoraConfig(target_modules=["query"])))
    assert "2 of 4 halves of layers are fused, not those with query (peft." in capfd.readouterr().err


def test_traced(packed):
    """torch.jit.trace writes down what it sees: not the packing of one batch."""
    ours, theirs = pair(return_dict=False, attn_implementation="eager")
    full, padded = batch(lengths=(12, 12, 12, 12)), batch()
    traced = torch.jit.trace(ours.eval(), (full["input_ids"], full["attention_mask"]), check_trace=False)
    assert not packed
    assert_same_tokens(lambda input_ids, attention_mask: traced(input_ids, attention_mask), theirs.eval(), padded)


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


# ---- Models that move, are kept, or asked for again ----


def test_again_says_nothing(capfd):
    model = make("bert")
    trireme.optimize(model)
    assert "runs packed and fused" in capfd.readouterr().err
    trireme.optimize(trireme.optimize(model))
    assert capfd.readouterr().err == ""


def test_another_device(capfd):
    with torch.device("meta"):
        model = transformers.BertModel(make("bert").config)
    trireme.optimize(model)
    assert "left BertModel (the model): a parameter is torch.float32 on meta" in capfd.readouterr().err


def test_another_type_later(packed):
    ours, theirs = pair()
    assert_close(ours.double()(**batch())[0], theirs.double()(**batch())[0])
    assert not packed


def test_disabled(monkeypatch, packed, capfd):
    monkeypatch.setenv("TRIREME_DISABLE", "1")
    ours, theirs = pair()
    assert torch.equal(ours(**batch())[0], theirs(**batch())[0])
    assert not packed
    assert capfd.readouterr().err == ""


def test_verified(monkeypatch, capfd):
    monkeypatch.setenv("TRIREME_VERIFY", "1")
    ours, theirs = pair(dropout=0.3)
    ours(**batch())
    ours(**batch())
    said = [line for line in capfd.readouterr().err.splitlines() if "verify" in line]
    assert len(said) == 1
    difference = float(said[0].partition("by at most ")[2].split()[0])
    assert difference <= TOLERANCE * HIDDEN**0.5
    assert ours.training


def test_verifying_leaves_each_module_in_its_mode(monkeypatch):
    """Also those that a user put into another one than the model's."""
    monkeypatch.setenv("TRIREME_VERIFY", "1")
    ours, _ = pair(dropout=0.3)
    ours.encoder.layer[0].eval()
    modes = [module.training for module in ours.modules()]
    ours(**batch())
    assert [module.training for module in ours.modules()] == modes


def test_verified_with_a_mask_by_place(monkeypatch, capfd):
    monkeypatch.setenv("TRIREME_VERIFY", "1")
    ours, _ = pair()
    ours(*batch().values())
    difference = float(capfd.readouterr().err.partition("by at most ")[2].split()[0])
    assert difference <= TOLERANCE * HIDDEN**0.5


def test_verify_says_where_it_compares_nothing(monkeypatch, capfd):
    monkeypatch.setenv("TRIREME_VERIFY", "1")
    trireme.optimize(torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8)))
    assert "nothing will be compared" in capfd.readouterr().err


def test_verify_sees_a_difference(monkeypatch, capfd):
    monkeypatch.setenv("TRIREME_VERIFY", "1")
    ours = trireme.optimize(make("bert"))
    real = encoders._packed

    def wrong(*args):
        result = real(*args)
        result.last_hidden_state[0, 0, 0] += 1
        return result

    monkeypatch.setattr(encoders, "_packed", wrong)
    ours(**batch())
    assert "by at most 1.0e+00" in capfd.readouterr().err


def test_saved_and_loaded(tmp_path, packed):
    ours, theirs = pair("bert", "ForSequenceClassification")
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    ours.save_pretrained(tmp_path)
    loaded = transformers.BertForSequenceClassification.from_pretrained(tmp_path).train()
    inputs = {**batch(), "labels": torch.arange(len(LENGTHS)) % 2}
    assert_same_training(train_once(loaded, inputs), train_once(theirs, inputs), 0.0)
    assert not packed
    assert_same_training(train_once(trireme.optimize(loaded), inputs), train_once(theirs, inputs))
    assert packed


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["deepcopy", "pickle"])
def test_copies(copied, packed):
    ours = trireme.optimize(make("bert"))
    assert torch.equal(copied(ours)(**batch())[0], ours(**batch())[0])
    assert len(packed) == 2


def test_a_model_that_was_not_asked_for_is_not_changed(packed):
    trireme.optimize(make("bert"))
    other = make("bert")
    other(**batch())
    assert not packed


def test_not_a_model():
    with pytest.raises(TypeError, match="torch.nn.Module"):
        trireme.optimize([])
