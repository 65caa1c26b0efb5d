"""Runs programs that train with Hugging Face's libraries, alone or on several processes, on a tiny model that is made on the spot: no network, no
package of data sets. A program's result is the last line of JSON that it prints.

    model = make_bert(tmp_path / "model", words)
    result = run(EXAMPLES / "text_classification.py", "--model_name_or_path", model, ..., logs=tmp_path, launcher="mpirun").result
"""

import dataclasses
import json
import pathlib
import shutil
import sys
from collections.abc import Iterable, Mapping

import pytest

from tests.multiprocess.ranks import MpirunRanks, Ranks

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: pip install -r tests/requirements.txt")
pytest.importorskip("accelerate", reason="accelerate is not installed: pip install -r tests/requirements.txt")

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
# A process takes up to 10 s to import transformers' Trainer, several times that where other things run.
TIMEOUT_S = 240
# MPICH's first: what a plain mpiexec or mpirun belongs to differs between machines.
MPIRUN = shutil.which("mpiexec.mpich") or shutil.which("mpiexec") or shutil.which("mpirun")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def make_bert(folder: pathlib.Path, pieces: Iterable[str], **options) -> pathlib.Path:
    """A folder as the hub has them: a BERT with random weights and without dropout, and a vocabulary of these words and ##pieces, from which
    transformers makes its fast tokenizer."""
    vocabulary = [*SPECIAL, *dict.fromkeys(pieces)]
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in vocabulary))
    shape = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, max_position_embeddings=64)
    dropout = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    spread = dict(initializer_range=0.1)  # with BERT's own 0.02, so narrow a model tells words apart only after hundreds of steps
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(vocab_size=len(vocabulary), **{**shape, **dropout, **spread, **options})).save_pretrained(folder)
    assert transformers.AutoTokenizer.from_pretrained(folder).is_fast
    return folder


@dataclasses.dataclass
class Run:
    result: dict  # what the program printed last, of JSON
    output: str  # all that its processes wrote


class _Processes(Ranks):
    """One process, and those that it starts: a program, or torchrun. All of them write to one log."""

    def __init__(self, argv: list[str], size: int, logs: pathlib.Path, env: Mapping[str, str]):
        super().__init__(size, logs)
        self._popen(None, argv, env, "rank0.log")


def run(
    program: pathlib.Path, *arguments: object, logs: pathlib.Path, launcher: str | None = None, size: int = 2, env: Mapping[str, str] = {}
) -> Run:
    """Alone, or by "mpirun" or "torchrun" on `size` processes, of one thread each. A program that fails or hangs is an error with all that it
    wrote."""
    command = [sys.executable, str(program), *map(str, arguments)]
    settings = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **env}
    logs.mkdir(parents=True, exist_ok=True)
    if launcher == "mpirun":
        if MPIRUN is None:
            pytest.skip("no mpiexec (Debian: mpich)")
        ranks = MpirunRanks(command, size, logs=logs, mpirun=[MPIRUN], env=settings)
    elif launcher == "torchrun":
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
        ranks = _Processes([*torchrun, *command[1:]], size, logs, settings)
    else:
        ranks = _Processes(command, 1, logs, settings)
    with ranks:
        codes = ranks.wait(TIMEOUT_S)
        output = ranks.outputs()
        assert not any(codes), f"exit codes {codes}\n{output}"
    return Run(last_json(output), output)


def last_json(output: str) -> dict:
    lines = [line for line in output.splitlines() if line.startswith('{"')]
    assert lines, f"no line of JSON\n{output}"
    return json.loads(lines[-1])
