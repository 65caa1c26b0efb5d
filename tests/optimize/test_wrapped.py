"""Optimized encoders inside of something else (DDP, FSDP, compilers, adapters), and with something of a user's inside (hooks, forwards, modules)."""

import pytest

from .models import FAMILIES, HIDDEN, LENGTHS, assert_close, assert_same_training, batch, clone, make, torch, train_once
from .pairs import assert_same_tokens, pair

import trireme
from trireme._optimize import encoders

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


def fsdp1(model):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    policy = ModuleWrapPolicy({type(model.bert.encoder.layer[0])})
    return FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True)


def fsdp2(model):
    from torch.distributed.fsdp import fully_shard

    mesh = torch.distributed.init_device_mesh("cpu", (1,))
    for module in (*model.bert.encoder.layer, model.bert, model):
        fully_shard(module, mesh=mesh)
    return model


@pytest.mark.parametrize("shard", [fsdp1, fsdp2])
@pytest.mark.parametrize("first", ["optimized", "sharded"])
def test_fsdp(group, packed, first, shard):
    theirs = make("bert", "ForSequenceClassification")
    ours = shard(trireme.optimize(clone(theirs))) if first == "optimized" else trireme.optimize(shard(clone(theirs)))
    inputs = {**batch(), "labels": torch.arange(len(LENGTHS)) % 2}
    loss, grads = train_once(ours, inputs)
    assert packed
    whole = {name.replace("_fsdp_wrapped_module.", ""): getattr(x, "full_tensor", lambda x=x: x)() for name, x in grads.items()}
    assert_same_training((loss, whole), train_once(theirs, inputs))


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


def test_traced(packed):
    """torch.jit.trace writes down what it sees: not the packing of one batch."""
    ours, theirs = pair(return_dict=False, attn_implementation="eager")
    full, padded = batch(lengths=(12, 12, 12, 12)), batch()
    traced = torch.jit.trace(ours.eval(), (full["input_ids"], full["attention_mask"]), check_trace=False)
    assert not packed
    assert_same_tokens(lambda input_ids, attention_mask: traced(input_ids, attention_mask), theirs.eval(), padded)


def test_a_traced_model_needs_none_of_our_operators():
    """Nor those of modules outside of the encoder, so that it can be loaded where Trireme is not."""
    model = trireme.optimize(make("bert", "ForMaskedLM", return_dict=False, attn_implementation="eager"))
    inputs = batch(lengths=(12, 12))
    traced = torch.jit.trace(model.eval(), (inputs["input_ids"], inputs["attention_mask"]), check_trace=False)
    graph = str(traced.inlined_graph)
    assert "aten::layer_norm" in graph and "trireme::" not in graph


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
