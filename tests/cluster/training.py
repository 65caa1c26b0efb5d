"""The runs that tests/cluster compares: `trireme qa` and Hugging Face's Trainer on a tiny model, on two hosts and on one."""

import functools
import os
import pathlib
import socket
import subprocess
import sys

import pytest

from tests.trainer.runs import TRIREME, json_of

from .mpis import MPICH

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "examples" / "question_answering.py"
# As on one host a process would have them; a machine's own settings must not leak into a comparison.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}


def trireme_qa(model, data, out, *flags) -> list[str]:
    """Two epochs of eight steps on four ranks; more flags override."""
    words = [
        TRIREME, "qa", "--model_name_or_path", model, *data, "--do_train", "--per_device_train_batch_size", 2, "--num_train_epochs", 2, "--learning_rate", 1e-3,
        "--logging_steps", 1, "--save_strategy", "no", "--report_to", "none", "--output_dir", out, *flags,
    ]  # fmt: skip
    return list(map(str, words))


def hf_trainer(model, data, out, *flags) -> list[str]:
    """The same by Hugging Face's Trainer, as the guides print it, one epoch of eight steps."""
    words = [
        sys.executable, SCRIPT, "--model_name_or_path", model, *data, "--do_train", "--per_device_train_batch_size", 2, "--num_train_epochs", 1,
        "--max_seq_length", 64, "--doc_stride", 16, "--learning_rate", 1e-3, "--logging_steps", 1, "--save_strategy", "no", "--report_to", "none",
        "--disable_tqdm", "True", "--no_cuda", "--ddp_backend", "ccl", "--use_ipex", "--output_dir", out, *flags,
    ]  # fmt: skip
    return list(map(str, words))


def losses(out: pathlib.Path) -> list[float]:
    return [entry["loss"] for entry in json_of(out / "trainer_state.json")["log_history"] if "loss" in entry]


def weights(out: pathlib.Path) -> bytes:
    return (out / "model.safetensors").read_bytes()


def on_this_machine(program: list[str], *labels: str) -> None:
    """Four processes; with labels, each takes itself for one on a host of that name."""
    if MPICH.mpirun is None:
        pytest.skip("no mpiexec.mpich (Debian: mpich)")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    parts = [["-n", "1", "-env", f"TRIREME_HOST={label}", *program] for label in labels] or [["-n", "4", *program]]
    argv = [MPICH.mpirun, *functools.reduce(lambda a, b: [*a, ":", *b], parts)]
    env = {**os.environ, **ENVIRONMENT, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
