"""bench/train_step checks what it times."""

import pathlib
import sys

import pytest

from .models import torch

BENCH = pathlib.Path(__file__).parents[2] / "bench" / "train_step"


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    import run

    return run


class Answers:
    def __init__(self, variant, logits):
        self.variant, self.logits = variant, logits

    def ask(self, question):
        assert question == "check"
        return {"logits": [self.logits, self.logits]}


def test_a_wrong_answer_ends_the_run(run):
    model = run.MODELS["minilm"]
    run.compare_answers([Answers("torch", [1.0, 2.0]), Answers("trireme", [1.0, 2.000001])], model, "fp32")
    for wrong in ([1.0, 2.1], [1.0, torch.nan]):
        with pytest.raises(SystemExit, match="trireme: its logits differ from those of torch"):
            run.compare_answers([Answers("torch", [1.0, 2.0]), Answers("trireme", wrong)], model, "fp32")
    with pytest.raises(SystemExit):
        run.compare_answers([Answers("torch", [1.0, 2.0]), Answers("trireme", [1.0, 2.3])], model, "bf16")


def test_the_answers_of_workers(run):
    workers = [run.Worker(sys.executable, variant, "minilm", "squad", "fp32", 1, 1) for variant in ("torch", "trireme")]
    try:
        run.compare_answers(workers, run.MODELS["minilm"], "fp32")
    finally:
        for worker in workers:
            worker.process.communicate()
