"""Models without a packed encoder: our attention beside torch's, and our Dropout and LayerNorm modules."""

import copy
import pickle
import subprocess
import sys

import pytest

from .models import EPS, HIDDEN, TOLERANCE, VERSION, VOCABULARY, assert_close, assert_same_training, batch, clone, torch, train_once, transformers

from torch.nn.attention import SDPBackend, sdpa_kernel

import trireme
from trireme import ops
from trireme._optimize import attention

has_registry = pytest.mark.skipif(VERSION < (4, 48), reason=f"transformers {transformers.__version__} has no registry of attention functions")

# One attention: two sums over 16 features and one over at most 12 keys, forward; five backward. Four times that.
ATTENTION_TOLERANCE = 4 * EPS * 16**0.5 * 8


class Layer(torch.nn.Module):
    def __init__(self, is_causal, groups=1):
        super().__init__()
        self.is_causal, self.num_key_value_groups = is_causal, groups


def masks(length, batch_size):
    """Name, mask and whether it can be read as padding."""
    places = torch.arange(length)
    right = places[None] < torch.tensor([length, 3, 7])[:batch_size, None]
    holes = right.clone()
    holes[0, 2] = holes[2, 4] = False
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    full = (batch_size, 1, length, length)
    window = causal & ~torch.ones(length, length, dtype=torch.bool).tril(-4)
    return {
        "none": None,
        "right padding": right[:, None, None].expand(full),
        "left padding": right.flip(1)[:, None, None].expand(full),
        "holes": holes[:, None, None].expand(full),
        "one row": right[:, None, None],
        "causal": causal[None, None],
        "causal, right padding": right[:, None, None] & causal,
        "causal, left padding": right.flip(1)[:, None, None] & causal,
        "window": window[None, None].expand(full),
        "strictly earlier": causal.tril(-1)[None, None].expand(full),
        "by head": (torch.rand(batch_size, 4, length, length, generator=torch.Generator().manual_seed(0)) < 0.7) | torch.eye(length).bool(),
        "nothing at all": torch.zeros(full, dtype=torch.bool),
        "numbers": torch.randn(batch_size, 1, length, length, generator=torch.Generator().manual_seed(0)),
    }


PACKED_MASKS = {"right padding", "left padding", "holes", "one row", "causal", "causal, right padding", "causal, left padding"}


@has_registry
@pytest.mark.parametrize("as_float", [False, True], ids=["bool", "float"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("name", masks(12, 3))
@pytest.mark.parametrize("packs", [True, False], ids=["packed", "padded"])
def test_attention(name, kv_heads, as_float, packs):
    torch.manual_seed(0)
    mask = masks(12, 3)[name]
    if as_float and mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    q, k, v = torch.randn(3, 4, 12, 16), torch.randn(3, kv_heads, 12, 16), torch.randn(3, kv_heads, 12, 16)
    seen = torch.ones(3, 12, dtype=torch.bool)  # places whose result matters
    if packs and name in PACKED_MASKS:
        allowed = mask if mask.dtype == torch.bool else mask == 0
        seen = allowed.any(2)[:, 0].expand(3, 12)
    weight = torch.randn(3, 12, 4, 16) * seen[..., None, None]
    results = []
    for compute in (ours(packs), theirs):
        inputs = [x.clone().requires_grad_() for x in (q, k, v)]
        out = compute(Layer(True, 4 // kv_heads), *inputs, mask)
        (out * weight).sum().backward()
        results.append([out * seen[..., None, None], *(x.grad for x in inputs)])
    for what, our, their in zip(("out", "dq", "dk", "dv"), *results, strict=True):
        assert_close(our, their, ATTENTION_TOLERANCE, f"{name}: {what}")


@has_registry
@pytest.mark.parametrize("packs", [True, False], ids=["packed", "padded"])
def test_a_mask_of_minus_infinity(packs):
    """A place that sees nothing gets nothing, and gives no gradient."""
    mask = torch.zeros(3, 1, 12, 12).masked_fill(~masks(12, 3)["strictly earlier"], -torch.inf)
    inputs = [torch.randn(3, 4, 12, 16, requires_grad=True) for _ in range(3)]
    out = ours(packs)(Layer(True), *inputs, mask)
    assert out[:, 0].eq(0).all() and out.isfinite().all()
    out.sum().backward()
    assert inputs[0].grad[:, :, 0].eq(0).all() and all(x.grad.isfinite().all() for x in inputs)


def ours(packs):
    return lambda *args: attention.attention(packs, *args)[0]


def theirs(layer, q, k, v, mask):
    k, v = (x.repeat_interleave(layer.num_key_value_groups, 1) for x in (k, v))
    # In steps: torch's fused kernel loses the sum of a row of lowest numbers, and has 1 for every probability in its backward pass.
    with sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None).transpose(1, 2)


@pytest.mark.parametrize("name", masks(12, 3))
def test_what_a_mask_says(name):
    mask = masks(12, 3)[name]
    if mask is not None:
        assert (attention.pattern_of(mask) is not None) == (name in PACKED_MASKS or name == "nothing at all"), name


def test_a_changed_mask_is_read_again():
    mask = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    assert attention.pattern_of(mask).present is None
    mask[..., 3] = False
    assert attention.pattern_of(mask).present.tolist() == [[True, True, True, False]]


@has_registry
@pytest.mark.parametrize("case", ["cache", "large heads", "double", "gradient of the mask", "probabilities", "softcap", "head mask", "by head"])
def test_attention_that_is_not_ours(case):
    torch.manual_seed(0)
    size = 320 if case == "large heads" else 16
    dtype = torch.float64 if case == "double" else torch.float32
    q, k, v = torch.randn(2, 4, 1 if case == "cache" else 6, size, dtype=dtype), *torch.randn(2, 2, 4, 6, size, dtype=dtype)
    mask = torch.randn(2, 1, q.shape[2], 6, dtype=dtype)
    options = {"probabilities": {"output_attentions": True}, "softcap": {"softcap": 2.0}}
    options |= {"head mask": {"head_mask": torch.rand(1, 4, 1, 1)}, "by head": {"head_mask": torch.rand(4)}}
    others = options.get(case, {})
    mask.requires_grad_(case == "gradient of the mask")
    out, weights = attention.attention(True, Layer(True), q, k, v, mask, **others)
    scores = q @ k.transpose(2, 3) * size**-0.5
    if case == "softcap":
        scores = 2 * torch.tanh(scores / 2)
    expected = torch.softmax(scores + mask, -1)
    if "head_mask" in others:
        expected = expected * others["head_mask"].view(1, 4, 1, 1)
    assert_close(out, (expected @ v).transpose(1, 2), ATTENTION_TOLERANCE, case)
    if case == "probabilities":
        assert_close(weights, expected, ATTENTION_TOLERANCE, case)
    if case == "gradient of the mask":
        out.sum().backward()
        assert mask.grad is not None


def gpt2(dropout=0.0):
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=HIDDEN, n_layer=2, n_head=4, n_positions=64, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout
    )
    return transformers.GPT2LMHeadModel(config)


def llama(dropout=0.0):
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=64, attention_dropout=dropout,
        )
    )  # fmt: skip


def mistral(dropout=0.0):
    """With a window that is shorter than the sequences."""
    return transformers.MistralForCausalLM(
        transformers.MistralConfig(
            vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=64, sliding_window=4, attention_dropout=dropout,
        )
    )  # fmt: skip


def bart(dropout=0.0):
    return transformers.BartForConditionalGeneration(
        transformers.BartConfig(
            vocab_size=VOCABULARY, d_model=HIDDEN, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
            encoder_ffn_dim=64, decoder_ffn_dim=64, max_position_embeddings=64, dropout=dropout, attention_dropout=dropout, activation_dropout=dropout,
        )
    )  # fmt: skip


def t5(dropout=0.0):
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(
            vocab_size=VOCABULARY, d_model=HIDDEN, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=dropout, decoder_start_token_id=0
        )
    )  # fmt: skip


MODELS = {make.__name__: make for make in (gpt2, llama, mistral, bart, t5)}


def language_batch(left=False):
    inputs = batch(left=left)
    # With padding on the left, the last token before the text predicts it, from a place that is padding: it has no label.
    first = torch.nn.functional.pad(inputs["attention_mask"], (1, 0))[:, :-1]
    return {**inputs, "labels": torch.where((inputs["attention_mask"] & first).bool(), inputs["input_ids"], -100)}


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("name", MODELS)
def test_model(name, left):
    torch.manual_seed(0)
    theirs = MODELS[name]().train()
    ours = trireme.optimize(clone(theirs))
    inputs = language_batch(left)
    assert_same_training(train_once(ours, inputs), train_once(theirs, inputs))


@has_registry
@pytest.mark.parametrize("reentrant", [False, True], ids=["non-reentrant", "reentrant"])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_gradient_checkpointing(name, reentrant, monkeypatch):
    """The same bits as without: what is computed again is drawn again."""
    torch.manual_seed(0)
    model = trireme.optimize(MODELS[name](dropout=0.3).train())
    model.enable_input_require_grads()
    kept = train_once(model, language_batch())
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    calls, real = [], ops.attention
    monkeypatch.setattr(ops, "attention", lambda *args, **options: calls.append(options["dropout_p"]) or real(*args, **options))
    recomputed = train_once(model, language_batch())
    assert calls == [0.3] * 4, "each of two layers runs forward twice, with dropout"
    assert_same_training(recomputed, kept, 0.0)
    assert train_once(model, language_batch(), seed=4)[0] != kept[0], "nothing was dropped"


@has_registry
def test_vision():
    config = transformers.ViTConfig(hidden_size=HIDDEN, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=16, patch_size=4)
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    torch.manual_seed(0)
    theirs = transformers.ViTForImageClassification(config).train()
    ours = trireme.optimize(clone(theirs))
    assert ours.config._attn_implementation == "trireme"
    inputs = {"pixel_values": torch.randn(2, 3, 16, 16), "labels": torch.tensor([0, 1])}
    assert_same_training(train_once(ours, inputs), train_once(theirs, inputs))


@pytest.fixture
def calls(monkeypatch):
    """Of our attention: how many tokens, and whether in causal order."""
    seen, real = [], ops.attention
    monkeypatch.setattr(ops, "attention", lambda *args, **kwargs: seen.append((args[0].shape[0], kwargs["causal"])) or real(*args, **kwargs))
    return seen


@has_registry
def test_a_switched_model_uses_our_attention(calls):
    model = trireme.optimize(llama())
    assert model.config._attn_implementation == "trireme"
    model(**language_batch())
    assert calls == [(29, True), (29, True)]  # two layers, packed: the tokens of the batch without its padding


@has_registry
def test_masks_that_are_not_given_or_too_long(calls):
    """Before 4.53 a model that is given no mask makes one of a key more than there are."""
    theirs = llama()
    ours = trireme.optimize(clone(theirs))
    ids = language_batch()["input_ids"]
    torch.testing.assert_close(ours(input_ids=ids).logits, theirs(input_ids=ids).logits)
    assert calls == [(ids.numel(), True)] * 2

    query, key, value = (torch.randn(2, 4, 9, 8) for _ in range(3))
    lowest = torch.finfo(torch.float32).min
    mask = torch.full((9, 10), lowest).triu(1).expand(2, 1, 9, 10).contiguous()
    module = torch.nn.Module()
    whole, _ = attention.attention(True, module, query, key, value, mask)
    wanted = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True).transpose(1, 2)
    torch.testing.assert_close(whole, wanted)
    attention.attention(True, module, query, key, value, mask)
    assert calls[2:] == [(18, True)] * 2
    mask[:, :, :, 0] = lowest  # the same object, which says something else now
    less, _ = attention.attention(True, module, query, key, value, mask)
    assert not torch.allclose(less, whole)


@has_registry
def test_what_a_mixture_of_experts_hands_on(calls):
    config = transformers.MixtralConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        num_local_experts=2, max_position_embeddings=64, output_router_logits=True,
    )  # fmt: skip
    model = trireme.optimize(transformers.MixtralForCausalLM(config))
    model(**language_batch())
    assert calls == [(29, True), (29, True)]


@has_registry
def test_cross_attention_is_not_packed():
    """A source may be as long as its target; its padding says nothing about the target's."""
    torch.manual_seed(0)
    theirs = bart().train()
    ours = trireme.optimize(clone(theirs))
    # Before 4.53 BART chooses its attention when it is made.
    assert ours.config._attn_implementation == ("trireme_padded" if VERSION >= (4, 53) else "sdpa")
    inputs = {**batch(), "labels": batch(lengths=(12, 12, 12, 12))["input_ids"]}
    assert_same_training(train_once(ours, inputs), train_once(theirs, inputs))


@pytest.mark.skipif(not (4, 53) <= VERSION < (5, 0), reason="before 4.53 BART's attention is its own, and transformers 5 has no head_mask")
def test_head_masks():
    """BART hands a layer one number for each head. torch's attention ignores them, so transformers' is eager."""
    torch.manual_seed(0)
    ours, config = trireme.optimize(bart().train()), bart().config
    config._attn_implementation = "eager"
    theirs = transformers.BartForConditionalGeneration(config).train()
    theirs.load_state_dict(ours.state_dict())
    inputs = language_batch() | {name: torch.rand(2, 4) for name in ("head_mask", "decoder_head_mask", "cross_attn_head_mask")}
    assert_same_training(train_once(ours, inputs), train_once(theirs, inputs))


@has_registry
def test_generation():
    """Cached steps, where there are more keys than queries, are torch's."""
    torch.manual_seed(0)
    theirs = llama().eval()
    ours = trireme.optimize(clone(theirs))
    inputs = batch(left=True)
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 1}
    assert torch.equal(ours.generate(**inputs, **options), theirs.generate(**inputs, **options))


@has_registry
def test_what_the_user_chose_stays():
    config = llama().config
    config._attn_implementation = "eager"
    model = trireme.optimize(transformers.LlamaForCausalLM(config))
    assert model.config._attn_implementation == "eager"


@has_registry
def test_saved_configuration_does_not_name_us(tmp_path):
    model = trireme.optimize(llama())
    model.save_pretrained(tmp_path)
    assert "trireme" not in (tmp_path / "config.json").read_text()
    assert transformers.LlamaForCausalLM.from_pretrained(tmp_path).config._attn_implementation == "sdpa"


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["deepcopy", "pickle"])
def test_copies(copied):
    torch.manual_seed(0)
    model = trireme.optimize(gpt2(dropout=0.1).train())
    again = copied(model)
    inputs = language_batch()
    assert_same_training(train_once(again, inputs), train_once(model, inputs), 0.0)


@has_registry
def test_pickle_in_another_process(tmp_path):
    """Where nobody has called optimize, and the name of our attention would mean nothing."""
    model = trireme.optimize(llama().eval())
    ids = batch()["input_ids"]
    (tmp_path / "model").write_bytes(pickle.dumps(model))
    program = f"import pickle, torch; model = pickle.load(open({str(tmp_path / 'model')!r}, 'rb')); "
    program += f"torch.save(model(torch.tensor({ids.tolist()})).logits, {str(tmp_path / 'logits')!r})"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    assert_close(torch.load(tmp_path / "logits"), model(ids).logits)


@pytest.mark.parametrize("trains", [False, True], ids=["evaluation", "training"])
def test_autocast_to_half(trains):
    """A cache may hand fp32 values to an attention under autocast, where ours would be asked for a type that it does not have."""
    model = llama().train(trains)
    expected = clone(model)
    trireme.optimize(model)
    inputs = language_batch()
    with torch.autocast("cpu", torch.float16):
        ours, theirs = model(**inputs).loss, expected(**inputs).loss
    assert torch.allclose(ours, theirs, atol=1e-2)


def test_transforms_get_torchs_own_code():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Dropout(0.5)).eval()
    expected = clone(model)
    trireme.optimize(model)
    x, tangent = torch.randn(3, 8), torch.randn(3, 8)
    for by in (lambda module: torch.func.grad(lambda x: module(x).square().sum())(x), lambda module: torch.func.jvp(module, (x,), (tangent,))[1]):
        assert torch.equal(by(model), by(expected))
    forward_ad = torch.autograd.forward_ad
    with forward_ad.dual_level():
        derivatives = [forward_ad.unpack_dual(module(forward_ad.make_dual(x, tangent))).tangent for module in (model, expected)]
    assert torch.equal(*derivatives)


@pytest.mark.parametrize("value", ["true", "on", "yes", "1"])
def test_turned_off_by_any_word_for_it(monkeypatch, value):
    monkeypatch.setenv("TRIREME_DISABLE", value)
    model = trireme.optimize(torch.nn.Sequential(torch.nn.LayerNorm(8)))
    assert "forward" not in vars(model[0])


def test_a_wrong_word_is_refused(monkeypatch):
    monkeypatch.setenv("TRIREME_DISABLE", "maybe")
    with pytest.raises(ValueError, match="TRIREME_DISABLE=maybe: expected 0 or 1"):
        trireme.optimize(torch.nn.Sequential(torch.nn.LayerNorm(8)))


def test_a_derived_model():
    class Mine(transformers.GPT2LMHeadModel):
        pass

    model = Mine(gpt2().config)
    trireme.optimize(model)
    assert model.config._attn_implementation == ("trireme" if VERSION >= (4, 48) else "sdpa")


# ---- Modules ----


def plain():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.Dropout(0.5))


def test_modules_are_swapped_and_look_the_same():
    torch.manual_seed(0)
    theirs = plain()
    ours = trireme.optimize(clone(theirs))
    assert [type(module) for module in ours] == [torch.nn.Linear, torch.nn.LayerNorm, torch.nn.Dropout]
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    assert repr(ours) == repr(theirs)
    for module in (ours, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert module[1].forward.args == (module[1],)
        x = torch.randn(64, 8)
        assert_close(module.eval()(x), theirs.eval()(x), TOLERANCE)
        dropped = module.train()(torch.randn(512, 8))
        assert 0.4 < (dropped == 0).float().mean() < 0.6


def test_a_hooked_or_derived_module_stays():
    class Mine(torch.nn.Dropout):
        pass

    model = torch.nn.Sequential(Mine(0.5), torch.nn.Dropout(0.5), torch.nn.LayerNorm(8))
    model[1].register_forward_hook(lambda *_: None)
    trireme.optimize(model)
    assert ["forward" in vars(module) for module in model] == [False, False, True]
