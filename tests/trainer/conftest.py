"""A tiny model, questions and the flags of a short run, for the tests that run `trireme qa`."""

import pytest

from .runs import questions, tiny_model


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return questions(tmp_path_factory.mktemp("data"))


@pytest.fixture
def flags(model, data, tmp_path):
    """Two epochs of eight steps on two ranks; more flags override."""
    return [
        "--model_name_or_path", model, *data, "--do_train", "--per_device_train_batch_size", 4, "--num_train_epochs", 2,
        "--learning_rate", 1e-3, "--logging_steps", 4, "--save_strategy", "no", "--report_to", "none", "--output_dir", tmp_path / "out",
    ]  # fmt: skip
