"""bf16: what is planned for which CPU, what torch.autocast and optimize(dtype=torch.bfloat16) do."""

import copy
import datetime
import os
import pathlib
import subprocess
import sys
import threading

import pytest

from .models import FAMILIES, LAYERS, LENGTHS, TOLERANCE, assert_close, assert_same_training, batch, clone, make, torch, train_once, transformers

import trireme
from trireme._optimize import precision

FLAGS = {"plain": "fpu avx2 avx512f", "avx512": "fpu avx512f avx512_bf16", "amx": "fpu avx512f avx512_bf16 amx_bf16"}
BF16_EPS = torch.finfo(torch.bfloat16).eps
# Where torch's bf16 products end the process there is nothing to compare.
runs_bf16 = pytest.mark.skipif(precision.probe()[0] is not None, reason=str(precision.probe()[0]))
INPUTS = {**batch(), "labels": torch.arange(len(LENGTHS)) % 2}


@pytest.fixture
def plan(monkeypatch, tmp_path):
    """plan(cpu, what the probe finds, **environment)"""

    def of(cpu, failure=None, ratio=3.0, **environment):
        for name in ("TRIREME_BF16", "TRIREME_MAX_ISA"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(precision, "probe", lambda: (failure, ratio))
        (tmp_path / cpu).write_text(f"processor\t: 0\nflags\t\t: {FLAGS[cpu]}\n")
        return trireme.bf16_plan(tmp_path / cpu)

    return of


@pytest.mark.parametrize(
    ("cpu", "environment", "native", "words"),
    [
        ("plain", {}, False, "neither AMX-BF16 nor AVX512-BF16"),
        ("avx512", {}, True, "this CPU has AVX512-BF16"),
        ("amx", {}, True, "this CPU has AMX-BF16 and AVX512-BF16"),
        ("amx", {"TRIREME_MAX_ISA": "avx2"}, False, "TRIREME_MAX_ISA=avx2"),
        ("amx", {"TRIREME_BF16": "emulate"}, False, "TRIREME_BF16=emulate"),
        ("plain", {"TRIREME_BF16": "native"}, True, "which is slow"),
    ],
)
def test_plan(plan, cpu, environment, native, words):
    result = plan(cpu, **environment)
    assert result.native is native
    assert words in str(result) and "\n" not in str(result)


def test_a_cpu_that_does_not_do_what_it_says(plan):
    result = plan("amx", failure="torch's bf16 matrix product ends a process with SIGILL")
    assert not result.native and "this CPU says that it has AMX-BF16 and AVX512-BF16, but torch's" in str(result)


def test_asking_for_bf16_never_makes_a_run_slower(plan):
    result = plan("avx512", ratio=0.7)
    assert not result.native and "0.70 times as fast as fp32's" in str(result)
    assert plan("avx512", ratio=0.7, TRIREME_BF16="native").native


def test_noise_does_not_decide(plan):
    assert not plan("avx512", ratio=1.1).native
    assert plan("avx512", ratio=1.3).native


@pytest.fixture
def rank(monkeypatch, plan):
    """rank(0 or 1, ...): what that rank of two plans, with plan's arguments."""
    distributed, store = torch.distributed, torch.distributed.HashStore()
    store.set_timeout(datetime.timedelta(seconds=1))
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(precision, "ANSWER_SECONDS", 1)

    def of(number, *args, **options):
        seen = distributed.PrefixStore("", store)  # an object for each rank, as in processes of their own
        monkeypatch.setattr(distributed, "get_rank", lambda: number)
        monkeypatch.setattr(distributed.distributed_c10d, "_get_default_store", lambda: seen)
        return plan(*args, **options)

    return of


@pytest.mark.parametrize(("of_0", "of_1"), [(1.1, 1.3), (1.3, 1.1), (1.3, 1.3)])
def test_rank_0_decides(rank, of_0, of_1):
    first, second = rank(0, "avx512", ratio=of_0), rank(1, "avx512", ratio=of_1)
    assert first.native == second.native == (of_0 > 1.2)


def test_a_rank_that_cannot_follow_says_so(rank):
    assert rank(0, "amx").native
    with pytest.raises(RuntimeError, match="rank 1: .*neither AMX-BF16 nor.*TRIREME_BF16=emulate on every rank"):
        rank(1, "plain")
    assert not rank(0, "plain").native
    assert not rank(1, "amx").native


def test_a_rank_that_asks_alone_is_told(rank):
    with pytest.raises(RuntimeError, match="rank 1: bf16_plan: rank 0 has not said in 1 s"):
        rank(1, "amx")


def test_probe_sees_a_process_die(monkeypatch):
    monkeypatch.setattr(precision.sys, "executable", "/bin/false")
    assert "exit code 1" in precision.probe.__wrapped__()[0]


@pytest.mark.skipif(precision.probe()[0] is None or "ONEDNN_MAX_CPU_ISA" in os.environ, reason="nothing was skipped here, or this is that run")
def test_this_file_without_amx():
    """What had to be skipped above, without the instructions that end the process."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    done = subprocess.run(command, env=environment, cwd=pathlib.Path(__file__).parents[2], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:]
    assert done.stdout.count("SKIPPED") <= 2, done.stdout


def test_a_wrong_value_says_what_is_allowed(plan):
    with pytest.raises(ValueError, match="TRIREME_BF16=yes: it must be one of auto, native, emulate"):
        plan("plain", TRIREME_BF16="yes")


def test_without_instructions_nothing_changes(monkeypatch, capfd):
    monkeypatch.setenv("TRIREME_BF16", "emulate")
    theirs = make("bert", "ForSequenceClassification")
    ours = trireme.optimize(clone(theirs), dtype=torch.bfloat16)
    trireme.optimize(ours, dtype=torch.bfloat16)
    assert capfd.readouterr().err.count("bf16: computes in fp32") == 1
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.float32}
    assert_same_training(train_once(ours, INPUTS), train_once(theirs, INPUTS))


def test_autocast_without_instructions_computes_in_fp32(monkeypatch):
    monkeypatch.setenv("TRIREME_BF16", "emulate")
    ours, theirs = trireme.optimize(make("bert")), make("bert")
    with torch.autocast("cpu", torch.bfloat16):
        hidden = ours(**batch())[0]
    assert hidden.dtype == torch.float32
    present = batch()["attention_mask"].bool()
    assert_close(hidden[present], theirs(**batch())[0][present], TOLERANCE)


def gpt2():
    torch.manual_seed(0)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=100, n_embd=32, n_layer=1, n_head=4, n_positions=64)).eval()


@pytest.mark.parametrize("make_model", [lambda: make("bert", "ForMaskedLM"), gpt2], ids=["head", "other model"])
def test_autocast_without_instructions_is_left_by_the_whole_model(monkeypatch, make_model):
    monkeypatch.setenv("TRIREME_BF16", "emulate")
    ours, theirs = trireme.optimize(make_model()), make_model()
    ids = batch(lengths=(12, 12))["input_ids"]
    with torch.autocast("cpu", torch.bfloat16):
        logits = ours(ids).logits
        assert torch.is_autocast_enabled("cpu")
    assert_close(logits, theirs(ids).logits, TOLERANCE)
    assert logits.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        with pytest.raises(IndexError):
            ours(ids + 1000)
        assert torch.is_autocast_enabled("cpu"), "a call that failed left autocast off"


def interrupt(*_):
    raise KeyboardInterrupt


def open_contexts():
    """How many of torch.autocast are open, as torch counts them."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


def test_an_interrupt_leaves_nothing_behind(monkeypatch):
    """torch calls no hooks where what ends a forward is no Exception."""
    monkeypatch.setenv("TRIREME_BF16", "emulate")
    monkeypatch.setattr(precision, "_left", threading.local())
    model, inputs = trireme.optimize(make("bert", "ForMaskedLM")), batch()
    hook = model.cls.register_forward_pre_hook(interrupt)
    with pytest.raises(KeyboardInterrupt), torch.autocast("cpu", torch.bfloat16):
        model(**inputs)
    hook.remove()
    assert not torch.is_autocast_enabled("cpu") and open_contexts() == 0
    model(**inputs)
    model.bert(**inputs)
    assert not torch.is_autocast_enabled("cpu"), "a call turned on what an earlier one had left"
    with torch.autocast("cpu", torch.bfloat16):
        assert model(**inputs).logits.dtype == torch.float32
        assert torch.is_autocast_enabled("cpu")


def test_an_interrupt_that_an_outer_model_catches(monkeypatch):
    monkeypatch.setenv("TRIREME_BF16", "emulate")
    monkeypatch.setattr(precision, "_left", threading.local())

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = make("bert")

        def forward(self, **inputs):
            with pytest.raises(KeyboardInterrupt):
                self.inner(**inputs)

    model = trireme.optimize(Outer())
    model.inner.embeddings.register_forward_pre_hook(interrupt)
    with torch.autocast("cpu", torch.bfloat16):
        model(**batch())
        assert torch.is_autocast_enabled("cpu")
    assert not precision._left.calls


@runs_bf16
@pytest.mark.parametrize("adapted", [False, True], ids=["plain", "lora"])
def test_autocast_with_instructions(monkeypatch, adapted):
    """bf16 matrix products, fp32 gradients. Two layers of bf16 rounding, half an eps each, some dozen times."""
    monkeypatch.setenv("TRIREME_BF16", "native")
    theirs = make("bert", "ForSequenceClassification")
    if adapted:
        peft = pytest.importorskip("peft")
        theirs = peft.get_peft_model(theirs, peft.LoraConfig(target_modules=["query", "dense"], r=4))
    ours = trireme.optimize(clone(theirs))
    expected = train_once(theirs, INPUTS)
    with torch.autocast("cpu", torch.bfloat16):
        loss, grads = train_once(ours, INPUTS)
    assert {gradient.dtype for gradient in grads.values()} == {torch.float32}
    assert_close(loss, expected[0], 24 * BF16_EPS)
    assert abs(loss - expected[0]) > 0, "nothing was computed in bf16"


# What a value passes on its way through a layer and back is stored about twenty times, each time rounded by half an eps; such errors are
# independent of each other and add as squares do. Three times that, for what a single draw of them may do. Sums over tokens, such as the gradients
# of biases and of token types, cancel to a tenth of what their terms would add up to: SHARE of the largest gradient counts too.
GRADIENT_TOLERANCE = 3 * BF16_EPS / 2 * (20 * LAYERS) ** 0.5
SHARE = 0.1


@runs_bf16
@pytest.mark.parametrize("how", ["autocast", "parameters"])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients(monkeypatch, packed, family, how):
    """Every one of them, beside those of the model in fp32."""
    monkeypatch.setenv("TRIREME_BF16", "native")
    theirs = make(family, "ForSequenceClassification")
    ours = clone(theirs)
    if how == "autocast":
        trireme.optimize(ours)
    else:
        trireme.optimize(ours, torch.optim.AdamW(ours.parameters()), torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
        loss, grads = train_once(ours, INPUTS)
    assert packed
    assert {gradient.dtype for gradient in grads.values()} == {torch.float32 if how == "autocast" else torch.bfloat16}
    result = loss, {name: gradient.float() for name, gradient in grads.items()}
    assert_same_training(result, train_once(theirs, INPUTS), GRADIENT_TOLERANCE, SHARE)


@runs_bf16
def test_training_with_split_weights(monkeypatch):
    """The lower halves are with the optimizer: together they are the fp32 weights, and a step too small for bf16 is not lost."""
    pytest.importorskip("trireme.optim")
    monkeypatch.setenv("TRIREME_BF16", "native")
    model = make("bert", "ForSequenceClassification")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.0)
    model, optimizer = trireme.optimize(model, optimizer, torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    for name, parameter in model.named_parameters():
        assert torch.equal(optimizer.fp32_weights(parameter), before[name]), name
    train_once(model, INPUTS)
    optimizer.step()
    weight = model.bert.encoder.layer[0].output.dense.weight
    moved = (optimizer.fp32_weights(weight) - before["bert.encoder.layer.0.output.dense.weight"]).abs()
    assert 0.5e-5 < moved.median() < 1.5e-5  # AdamW's first step is lr long
    fp32 = make("bert", "ForSequenceClassification", seed=9)
    fp32.load_state_dict(model.state_dict())
    assert torch.equal(fp32.classifier.weight, model.classifier.weight.float())


STATES = {
    "AdamW": lambda params: torch.optim.AdamW(params, amsgrad=True),
    "Adam": lambda params: torch.optim.Adam(params, weight_decay=0.1),
    "SGD": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "Adagrad": lambda params: torch.optim.Adagrad(params, initial_accumulator_value=0.1),
}


@pytest.mark.parametrize("kind", STATES)
def test_state_goes_back_to_torch_before_a_step(monkeypatch, kind):
    """torch's begins its state where there is none at all: there, half of one would stay so."""
    monkeypatch.setenv("TRIREME_BF16", "native")
    model = torch.nn.Linear(8, 4)
    plain, loaded, optimizer = clone(model), clone(model), STATES[kind](model.parameters())
    trireme.optimize(model, optimizer, torch.bfloat16)
    theirs = STATES[kind](plain.parameters()), STATES[kind](loaded.parameters())
    theirs[1].load_state_dict(optimizer.state_dict())
    for _ in range(2):
        for param in (*plain.parameters(), *loaded.parameters()):
            param.grad = param.detach().clone()
        for each in theirs:
            each.step()
    assert torch.equal(loaded.weight, plain.weight) and torch.equal(loaded.bias, plain.bias)


def in_bf16(weights, state=None, masters="split", first="optimize"):
    """A new model and optimizer that go on from these weights and that state, in that order."""
    model = torch.nn.Linear(64, 64)
    optimizer = trireme.optim.AdamW(model.parameters(), master_weights=None if masters == "split" else masters)
    model.load_state_dict(weights)
    if first == "load" and state is not None:
        optimizer.load_state_dict(state)
    trireme.optimize(model, optimizer, torch.bfloat16)
    if first == "optimize" and state is not None:
        optimizer.load_state_dict(state)
    return model, optimizer


def exact(model, optimizer):
    return [optimizer.fp32_weights(param) for param in model.parameters()]


def step(model, optimizer):
    for param in model.parameters():
        param.grad = torch.linspace(-1, 1, param.numel(), dtype=param.dtype).view_as(param)
    optimizer.step()


@pytest.mark.parametrize("masters", ["split", "fp32"])
@pytest.mark.parametrize("of", ["fp32", "bf16"])
@pytest.mark.parametrize("first", ["optimize", "load"])
def test_resuming_loses_nothing_of_a_weight(monkeypatch, first, of, masters):
    """Of a run in fp32 with torch's optimizer, and of one in bf16, whose state has the lower halves."""
    monkeypatch.setenv("TRIREME_BF16", "native")
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    step(model, optimizer)
    wanted = [param.detach().clone() for param in model.parameters()]
    if of == "bf16":
        model, optimizer = in_bf16(model.state_dict())
        step(model, optimizer)
        wanted = exact(model, optimizer)
    resumed, again = in_bf16(model.state_dict(), copy.deepcopy(optimizer.state_dict()), masters, first)
    assert resumed.weight.dtype == torch.bfloat16 and again.master_weights == masters
    step(resumed, again)  # what is behind a weight may be made by a step
    step_alone = [torch.nn.Parameter(each.clone()) for each in wanted]
    reference = trireme.optim.AdamW(step_alone)
    reference.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for param, like in zip(step_alone, resumed.parameters(), strict=True):
        param.grad = like.grad.float()
    reference.step()
    for ours, theirs in zip(exact(resumed, again), step_alone, strict=True):
        assert torch.equal(ours, theirs.detach())


def test_weights_that_are_loaded_later_count(monkeypatch):
    """The halves of what was there before them must not come back with the optimizer's state."""
    monkeypatch.setenv("TRIREME_BF16", "native")
    saved = torch.nn.Linear(64, 64)
    theirs = torch.optim.AdamW(saved.parameters())
    step(saved, theirs)
    model, optimizer = in_bf16(torch.nn.Linear(64, 64).state_dict())
    model.load_state_dict(saved.state_dict())
    optimizer.load_state_dict(theirs.state_dict())
    assert torch.equal(optimizer.fp32_weights(model.weight), saved.weight.detach().to(torch.bfloat16).float())


def test_parameters_that_another_optimizer_holds_keep_all_in_fp32(monkeypatch, capfd):
    monkeypatch.setenv("TRIREME_BF16", "native")
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    trireme.optimize(model, torch.optim.SGD(model[0].parameters(), lr=1e-6), torch.bfloat16)
    assert {param.dtype for param in model.parameters()} == {torch.float32}
    assert "does not hold 2 of those that train" in capfd.readouterr().err


def test_in_inference_mode(monkeypatch):
    monkeypatch.setenv("TRIREME_BF16", "native")
    model = torch.nn.Linear(8, 8).eval()
    with torch.inference_mode():
        trireme.optimize(model, dtype=torch.bfloat16)
        made_there = trireme.optimize(torch.nn.Linear(8, 8).eval(), dtype=torch.bfloat16)
    assert model.weight.dtype == made_there.weight.dtype == torch.bfloat16


def test_parameters_of_other_models_stay_as_they_are(monkeypatch):
    """One optimizer for two models, of which one was asked for."""
    monkeypatch.setenv("TRIREME_BF16", "native")
    model, other = torch.nn.Linear(8, 4), torch.nn.Linear(8, 4)
    optimizer = torch.optim.AdamW([*model.parameters(), *other.parameters()])
    before = clone(other)
    trireme.optimize(model, optimizer, torch.bfloat16)
    assert model.weight.dtype == torch.bfloat16
    assert other.weight.dtype == torch.float32 and torch.equal(other.weight, before.weight)
    for param in (*model.parameters(), *other.parameters()):
        param.grad = torch.ones_like(param)
    optimizer.step()
    assert "lower_half" in optimizer.state[model.weight] and "lower_half" not in optimizer.state[other.weight]
    assert not torch.equal(other.weight, before.weight)


@runs_bf16
@pytest.mark.parametrize("first", ["wrapped", "wrapped outside", "optimized"])
def test_ddp_goes_on_to_synchronise(monkeypatch, capfd, group, first):
    """A parameter that changes its type loses the hooks by which DDP learns of its gradient."""
    monkeypatch.setenv("TRIREME_BF16", "native")
    model, buckets = make("bert", "ForSequenceClassification"), []
    optimizer = torch.optim.AdamW(model.parameters())
    if first == "optimized":
        trireme.optimize(model, optimizer, torch.bfloat16)
    model = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)

    def count(state, bucket):
        buckets.append(1)
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    model.register_comm_hook(None, count)
    if first != "optimized":
        trireme.optimize(model if first == "wrapped" else model.module, optimizer, torch.bfloat16)
        assert "bf16: the parameters stay fp32: call optimize before" in capfd.readouterr().err
    train_once(model, INPUTS)
    assert buckets, "no gradient was reduced"
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16 if first == "optimized" else torch.float32}


@runs_bf16
@pytest.mark.parametrize("trains", [True, False], ids=["training", "evaluation"])
def test_buffers_stay_as_they_are(monkeypatch, trains):
    """The frequencies of rotary positions are no weights: rounded to bf16, they are other positions."""
    monkeypatch.setenv("TRIREME_BF16", "native")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4)
    model = transformers.LlamaForCausalLM(config).train(trains)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    assert any(buffer.is_floating_point() for buffer in before.values())
    trireme.optimize(model, torch.optim.AdamW(model.parameters()) if trains else None, dtype=torch.bfloat16)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    after = dict(model.named_buffers())
    assert before.keys() == after.keys()
    for name, buffer in before.items():
        assert after[name].dtype == buffer.dtype and torch.equal(after[name], buffer), name


@runs_bf16
def test_the_loss_of_question_answering_is_fp32(monkeypatch):
    monkeypatch.setenv("TRIREME_BF16", "native")
    model = trireme.optimize(make("bert", "ForQuestionAnswering").eval(), dtype=torch.bfloat16)
    places = torch.tensor([3, 0, 6, 2])
    result = model(**batch(), start_positions=places, end_positions=places)
    assert result.start_logits.dtype == torch.bfloat16 and result.loss.dtype == torch.float32
    expected = [torch.nn.functional.cross_entropy(logits.float(), places) for logits in (result.start_logits, result.end_logits)]
    assert_close(result.loss, sum(expected) / 2)


@runs_bf16
def test_a_model_that_trains_without_its_optimizer_stays_fp32(monkeypatch, capfd):
    monkeypatch.setenv("TRIREME_BF16", "native")
    model = trireme.optimize(make("bert"), dtype=torch.bfloat16)
    assert "needs its optimizer" in capfd.readouterr().err
    assert model.dtype == torch.float32
    assert trireme.optimize(make("bert").eval(), dtype=torch.bfloat16).dtype == torch.bfloat16


def test_other_types_are_refused():
    with pytest.raises(ValueError, match="torch.float16"):
        trireme.optimize(make("bert"), dtype=torch.float16)
