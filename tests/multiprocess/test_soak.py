"""What only time shows: a minute of checked operations in each form, and many jobs that lose a rank."""

import random
import time

import pytest

from .ccl_ranks import failure, start

SECONDS = 60

pytestmark = pytest.mark.long


@pytest.mark.parametrize("direct", ["1", "0"])
@pytest.mark.parametrize("size_bytes", [8, 65536, 4 << 20])
def test_more_ranks_than_cores(tmp_path, direct, size_bytes):
    arguments = ("--bytes", size_bytes, "--seconds", SECONDS, "--check")
    with start(tmp_path, 8, *arguments, TRIREME_DIRECT_READ=direct) as ranks:
        assert ranks.wait(timeout_s=SECONDS + 60) == [0] * 8


def test_ranks_die_at_any_moment(tmp_path):
    chance = random.Random(1)
    for job in range(50):
        logs = tmp_path / str(job)
        logs.mkdir()
        victim = chance.randrange(4)
        with start(logs, 4, "--bytes", chance.choice([8, 65536, 4 << 20]), "--seconds", 30) as ranks:
            time.sleep(chance.uniform(0, 0.2))
            ranks.kill(victim)
            ranks.wait(timeout_s=10)
            for rank in set(range(4)) - {victim}:
                _, kind, message = failure(ranks, rank)
                assert kind == "PeerLost" and f"rank {victim}" in message, message
            assert not ranks.living()
