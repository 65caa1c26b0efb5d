"""bench/scaling's model: it knows the models it speaks of, behaves at the limits where the answer is known, and the page shows what was measured."""

import importlib.util
import json
import math
import pathlib
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "bench" / "results" / "scaling.json"


def load(name: str):
    spec = importlib.util.spec_from_file_location(f"scaling_{name}", REPOSITORY / "bench" / "scaling" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


model, page = load("model"), load("page")
BASE = model.ENCODERS["base"]
MACHINE = model.Machine(flops_per_second=1e11, seconds_per_parameter=1e-9)
FREE = model.Network(link_bytes_per_second=math.inf, call_seconds=0, peer_seconds=0, byte_seconds=0)


def step(hosts=2, ranks=1, machine=MACHINE, network=FREE, encoder=BASE):
    return model.step(encoder, 12, 160, hosts, ranks, machine, network)


def slow(bytes_per_second: float):
    return model.Network(bytes_per_second, call_seconds=0, peer_seconds=0, byte_seconds=0)


@pytest.mark.parametrize("name, hidden, layers, heads", [("base", 768, 12, 12), ("large", 1024, 24, 16), ("minilm", 384, 6, 12)])
def test_parameters_are_those_of_transformers(name, hidden, layers, heads):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.BertConfig(hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * hidden)
    with torch.device("meta"):
        theirs = transformers.BertForQuestionAnswering(config)
    encoder = model.ENCODERS[name]
    assert [count for _, count in encoder.parameters()] == [each.numel() for each in theirs.parameters()]
    # Six FLOPs for each token and weight of a dense layer: forward, and twice that backward.
    dense = sum(each.weight.numel() for each in theirs.bert.encoder.modules() if isinstance(each, torch.nn.Linear))
    assert encoder.flops_per_token(0) == 6 * dense


def test_buckets_hold_everything_and_the_embeddings_come_last():
    for encoder in model.ENCODERS.values():
        sizes, full_after = zip(*encoder.buckets())
        assert sum(sizes) == 4 * encoder.count()
        assert list(full_after) == sorted(full_after) and full_after[-1] == 1
        assert sizes[-1] >= 4 * encoder.vocabulary * encoder.hidden
        assert all(size <= model.BUCKET_BYTES for size in sizes[:-1])


def test_communication_that_costs_nothing_costs_nothing():
    assert model.efficiency(step(hosts=64)) == pytest.approx(1)
    assert step(hosts=1).seconds == step(hosts=1).compute_seconds


def test_a_slow_link_is_all_that_counts():
    """Then nothing but the bytes: 2 (H-1)/H of the gradients, after the forward pass and the first bucket's layers."""
    for hosts in (2, 4, 64):
        expected = 2 * (hosts - 1) / hosts * 4 * BASE.count() / 1e4
        assert step(hosts=hosts, network=slow(1e4)).seconds == pytest.approx(expected, rel=1e-3)


def test_the_backward_pass_hides_all_but_the_embeddings():
    """Their gradients are there when the backward pass is over: nothing hides the way of the buckets that they are in."""
    late = sum(size for size, full_after in BASE.buckets() if full_after == 1)
    assert step(network=slow(1e9)).exposed_seconds == pytest.approx(late / 1e9, rel=1e-6)


def test_more_hosts_slower_links_and_shared_cores_never_help():
    seconds = [step(hosts=hosts, network=slow(3e8)).seconds for hosts in (2, 4, 8, 16, 64)]
    assert seconds == sorted(seconds)
    assert step(network=slow(1e8)).seconds > step(network=slow(1e9)).seconds > step().seconds
    busy = model.Network(1e9, 0, 0, byte_seconds=1e-9)
    sharing = model.Machine(1e11, 1e-9, worker_shares_cores=True)
    assert step(machine=sharing, network=busy).seconds > step(network=busy).seconds


def test_ranks_that_take_turns_take_their_number_times_as_long():
    turns = model.Machine(1e11, 1e-9, ranks_per_core=4)
    assert step(hosts=1, ranks=8, machine=turns, network=None).seconds == pytest.approx(4 * step(hosts=1).seconds)


@pytest.mark.skipif(not RESULTS.exists(), reason="bench/scaling/run.py --json has not been run")
def test_the_page_shows_what_was_measured():
    assert page.tables(json.loads(RESULTS.read_text())) in page.PAGE.read_text(), "run bench/scaling/run.py --page"
