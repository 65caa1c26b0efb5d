"""bench/scaling's model: it knows the models it speaks of, behaves at the limits where the answer is known, and the page shows what was measured."""

import importlib.util
import json
import math
import pathlib
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "bench" / "results" / "scaling.json"


sys.path.append(str(REPOSITORY / "bench" / "scaling"))  # page.py imports model.py


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


def results_of(*points: tuple, **more) -> dict:
    """(model, hosts, ranks of each, mbit, error) each."""
    keys = ("model", "hosts", "ranks_per_host", "mbit", "error")
    return {"points": [dict(zip(keys, point)) for point in points], "machines": {point[0]: {} for point in points}, "cores": 2, **more}


def test_what_is_left_out_is_named():
    one, eight = ("minilm", 1, 1, None, 0), ("minilm", 1, 8, None, 0)
    assert "left out: its ranks" not in page.left_out(results_of(one, eight))
    assert "base, 8 on one host, is left out: its ranks need 24 GB" in page.left_out(results_of(one, eight, ("base", 1, 1, None, 0)))


def test_errors_are_told_as_they_are():
    here, free, slow = ("base", 1, 2, None, 0.12), ("base", 2, 1, 0.0, -0.08), ("base", 2, 1, 300.0, -0.23)
    said = page.errors_of_steps(results_of(here, ("base", 1, 4, None, -0.07), free, slow, ("base", 2, 1, 1000.0, -0.01)))
    assert "-7 % to +12 % on one host, -8 % between two hosts without a limit, -23 % to -1 % over limited links." in said and "upper bound" in said
    assert "upper bound" not in page.errors_of_steps(results_of(here, free, slow, ("base", 2, 1, 1000.0, 0.01)))


def test_allreduces_that_were_not_fitted_have_an_error():
    """Times that the model's own formula gives have none, and twice such a time has -50 %."""
    byte, call, peer = 1e-9, 1e-5, 3e-4
    of = lambda hosts: {size: call + (hosts - 2) * peer + 2 * (hosts - 1) / hosts * size * byte for size in (4096, 1 << 20, 16 << 20)}  # noqa: E731
    collectives = {"2 ranks on one host": of(2), "2 hosts": of(2), "4 hosts": of(4) | {1 << 20: 2 * of(4)[1 << 20]}}
    machine = dict(flops_per_second=1e11, seconds_per_parameter=0, host_call_seconds=call, host_byte_seconds=byte)
    said = page.allreduces({"collectives": collectives, "machines": {"base": machine}, "predicted_with": "base", "cores": 2})
    (half,) = [line for line in said.splitlines() if line.startswith("| 4 hosts | 1 MiB")]
    (whole,) = [line for line in said.splitlines() if line.startswith("| 4 hosts | 16 MiB")]
    assert half.endswith("| -50 % |") and whole.endswith("| +0 % |") and said.count("come from it") == 5


@pytest.mark.skipif(not RESULTS.exists(), reason="bench/scaling/run.py --json has not been run")
def test_the_page_shows_what_was_measured():
    assert page.tables(json.loads(RESULTS.read_text())) in page.PAGE.read_text(), "run bench/scaling/run.py --page"
