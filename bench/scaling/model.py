"""A model of the step time of data-parallel training: what a step computes, what it sends, and what of that the backward pass hides.

    forward | backward ............................| optimizer
                 bucket 0 | bucket 1 | ... | bucket n          each starts when its gradients are there and the one before it is done

A bucket is reduced as docs/ccl.md says: within a host, then each part between the hosts, in two exchanges in which a host sends and receives
(H-1)/H of its bytes. Everything that is a property of a machine is a field of Machine or Network, and comes from a measurement or is
named as an assumption by who fills it in. Nothing here is fitted to the steps of several ranks that it is checked against.
"""

import dataclasses

FLOAT_BYTES = 4
BUCKET_BYTES = 25 << 20  # trireme/trainer/train/gradients.h
# Of one rank: 16 for weights, gradients and moments, the rest for a batch's activations; measured: 3.0 GB of BERT-base's 109 M parameters.
BYTES_PER_PARAMETER = 28
SMALL_BYTES, LARGE_BYTES = 4096, 16 << 20  # of the allreduces that the numbers of a network come from
BACKWARD_SHARE = 2 / 3  # of forward and backward: two products for each of the forward pass


@dataclasses.dataclass(frozen=True)
class Encoder:
    """The shape of a BERT, as its config.json has it."""

    layers: int
    hidden: int
    intermediate: int
    vocabulary: int = 30522
    positions: int = 512
    types: int = 2

    def parameters(self) -> list[tuple[int, int]]:
        """(layer, elements) of every parameter with a head for question answering, in the model's order; embeddings are layer -1."""
        h, i = self.hidden, self.intermediate
        embeddings = [(-1, rows * h) for rows in (self.vocabulary, self.positions, self.types)] + [(-1, h), (-1, h)]
        layer = [h * h, h] * 4 + [h, h] + [h * i, i, i * h, h] + [h, h]
        return embeddings + [(number, count) for number in range(self.layers) for count in layer] + [(self.layers, 2 * h), (self.layers, 2)]

    def count(self) -> int:
        return sum(count for _, count in self.parameters())

    def memory_bytes(self) -> int:
        return BYTES_PER_PARAMETER * self.count()

    def flops_per_token(self, length: float) -> float:
        """Forward and backward, of the matrix products: dense layers, and attention at this mean length."""
        dense = self.layers * (4 * self.hidden**2 + 2 * self.hidden * self.intermediate)
        attention = self.layers * 2 * length * self.hidden
        return 6 * (dense + attention)

    def buckets(self) -> list[tuple[int, float]]:
        """(bytes, share of the backward pass after which it is full), in the order in which they travel: as gradients.cpp fills them."""
        buckets: list[list[tuple[int, int]]] = []
        held = 0
        for layer, count in reversed(self.parameters()):
            more = count * FLOAT_BYTES
            if not buckets or held + more > BUCKET_BYTES:
                buckets.append([])
                held = 0
            held += more
            buckets[-1].append((layer, count))
        return [(sum(count for _, count in each) * FLOAT_BYTES, self._done_after(min(layer for layer, _ in each))) for each in buckets]

    def _done_after(self, layer: int) -> float:
        """Layers cost the same; the embeddings' gradient comes after all of them."""
        return 1.0 if layer < 0 else (self.layers - min(layer, self.layers)) / self.layers


ENCODERS = {
    "minilm": Encoder(layers=6, hidden=384, intermediate=1536),
    "base": Encoder(layers=12, hidden=768, intermediate=3072),
    "large": Encoder(layers=24, hidden=1024, intermediate=4096),
}


@dataclasses.dataclass(frozen=True)
class Machine:
    """What one rank does by itself, with every core of its host busy as in a job."""

    flops_per_second: float  # forward and backward
    seconds_per_parameter: float  # what a step costs whatever the batch: optimizer, clipping
    # Between two ranks of a host: seconds of a call, and for each byte of the message.
    host_call_seconds: float = 0.0
    host_byte_seconds: float = 0.0
    # Does a worker take its time from the cores that compute? docs/threads.md: it has a core of its own from 8 cores on.
    worker_shares_cores: bool = False
    ranks_per_core: float = 1.0  # more than one: ranks take turns


@dataclasses.dataclass(frozen=True)
class Network:
    link_bytes_per_second: float  # payload, in each direction of a host; inf: as fast as the hosts can
    call_seconds: float  # of an allreduce of next to nothing between two hosts
    peer_seconds: float  # for each host more than two
    # What one rank's sending, receiving and reducing takes of its processor for each byte that it sends and receives.
    byte_seconds: float


def line(seconds: dict[int, float]) -> tuple[float, float]:
    """(seconds of a call, seconds a byte)."""
    slope = (seconds[LARGE_BYTES] - seconds[SMALL_BYTES]) / (LARGE_BYTES - SMALL_BYTES)
    return max(0.0, seconds[SMALL_BYTES] - slope * SMALL_BYTES), slope


def network_from(collectives: dict, link_bytes_per_second: float) -> Network:
    """Between two hosts a byte of the message is a byte sent and a byte received by each: that is what byte_seconds counts."""
    call, byte = line(collectives["2 hosts"])
    peer = max(0.0, (collectives["4 hosts"][SMALL_BYTES] - collectives["2 hosts"][SMALL_BYTES]) / 2)
    return Network(link_bytes_per_second, call, peer, byte)


def allreduce_seconds(size: float, hosts: int, ranks_per_host: int, machine: Machine, network: Network | None) -> tuple[float, float]:
    """(seconds it takes, seconds of them that each rank's processor is busy)."""
    busy = 0.0
    if ranks_per_host > 1:
        # A rank reads and writes (P-1)/P of the bytes: half of them where there are two.
        share = 2 * (ranks_per_host - 1) / ranks_per_host
        busy = machine.ranks_per_core * (machine.host_call_seconds + machine.host_byte_seconds * share * size)
    if hosts == 1:
        return busy, busy
    sent = 2 * (hosts - 1) / hosts * size  # by a host, its ranks sharing the work
    handled = sent / ranks_per_host * network.byte_seconds
    call = network.call_seconds + (hosts - 2) * network.peer_seconds
    return busy + call + max(sent / network.link_bytes_per_second, handled), busy + handled


@dataclasses.dataclass(frozen=True)
class Step:
    seconds: float
    compute_seconds: float  # without the others: what as many ranks would need that have nothing to say to each other
    exposed_seconds: float  # communication that the backward pass does not hide, and what workers take from it
    sent_bytes: float  # by a host


def step(encoder: Encoder, samples_per_rank: float, tokens_per_sample: float, hosts: int, ranks_per_host: int, machine: Machine, network: Network | None) -> Step:
    flops = samples_per_rank * tokens_per_sample * encoder.flops_per_token(tokens_per_sample)
    products = machine.ranks_per_core * flops / machine.flops_per_second
    fixed = machine.ranks_per_core * encoder.count() * machine.seconds_per_parameter
    compute = products + fixed
    if hosts * ranks_per_host == 1:
        return Step(compute, compute, 0.0, 0.0)
    forward, backward, free_at, stolen = products * (1 - BACKWARD_SHARE), products * BACKWARD_SHARE, 0.0, 0.0
    for size, full_after in encoder.buckets():
        takes, busy = allreduce_seconds(size, hosts, ranks_per_host, machine, network)
        full_at = forward + backward * full_after
        if machine.worker_shares_cores:
            # What the worker took so far is what the backward pass is late by; after it, nobody minds.
            full_at += stolen
            stolen += busy if full_after < 1 else 0.0
        free_at = max(free_at, full_at) + takes
    seconds = max(free_at, products + stolen) + fixed
    sent = 2 * (hosts - 1) / hosts * encoder.count() * FLOAT_BYTES
    return Step(seconds, compute, seconds - compute, sent)


def efficiency(step_of_many: Step) -> float:
    """Samples a second of the job, beside those of as many ranks that have nothing to say to each other."""
    return step_of_many.compute_seconds / step_of_many.seconds
