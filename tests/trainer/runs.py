"""Runs of `trireme qa` on tiny models, for the tests."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from tests.huggingface.questions import minilm, write_questions

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TRIREME_BUILD_DIR", REPOSITORY / "build" / "release")).resolve()
TRIREME = BUILD / "bin" / "trireme"

needs_program = pytest.mark.skipif(not TRIREME.exists(), reason="the trainer is not built: torch was not found")


def tiny_model(folder: pathlib.Path, max_positions: int = 128, family: str = "Bert", **changes) -> pathlib.Path:
    """A model of two narrow layers with random weights and a tokenizer of its family; BERT's is a real one."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(11)
    vocabulary = save_tokenizer(folder, family)
    # DistilBERT knows these by other names, too.
    config = getattr(transformers, f"{family}Config")(
        vocab_size=vocabulary, hidden_size=32, num_attention_heads=2, num_hidden_layers=2, max_position_embeddings=max_positions,
        **{"hidden_dim" if family == "DistilBert" else "intermediate_size": 64}, **changes,
    )  # fmt: skip
    getattr(transformers, f"{family}ForQuestionAnswering")(config).save_pretrained(folder)
    return folder


def save_tokenizer(folder: pathlib.Path, family: str) -> int:
    """The size of its vocabulary."""
    folder.mkdir(parents=True, exist_ok=True)
    if "Roberta" not in family:
        for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
            shutil.copy(minilm() / name, folder / name)
        return 30522
    import transformers

    from . import families

    trained = families.xlm_roberta() if family == "XLMRoberta" else families.roberta()
    names = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=trained, **names).save_pretrained(folder)
    return max(trained.get_vocab().values()) + 1


def questions(folder: pathlib.Path, train: int = 64, dev: int = 16) -> list[str]:
    """The flags that name a training and a development set."""
    train_file, dev_file = write_questions(folder / "train.json", train, seed=1), write_questions(folder / "dev.json", dev, seed=2)
    return ["--train_file", train_file, "--validation_file", dev_file]


def command(ranks: int, *flags) -> list[str]:
    program = [TRIREME, "qa", *flags]
    return list(map(str, program if ranks == 0 else ["mpirun", "-n", ranks, "-genv", "OMP_NUM_THREADS=1", *program]))


def run(ranks: int, *flags, check: bool = True, timeout_s: float = 120, **environment) -> subprocess.CompletedProcess:
    """`trireme qa` under mpirun; by itself where `ranks` is 0."""
    done = subprocess.run(command(ranks, *flags), capture_output=True, text=True, timeout=timeout_s, env={**os.environ, **environment})
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def run_unlike(flags: list, *each, **environment) -> subprocess.CompletedProcess:
    """`trireme qa` under mpirun, on as many ranks as there are lists of further arguments. What stands before `qa` in a list are arguments of mpirun."""
    words = ["mpirun", "-genv", "OMP_NUM_THREADS=1"]
    for rank, more in enumerate(each):
        at = more.index("qa") if "qa" in more else -1
        words += [*([":"] if rank > 0 else []), "-n", 1, *more[: max(at, 0)], TRIREME, "qa", *flags, *more[at + 1 :]]
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=120, env={**os.environ, **environment})


class Started:
    """A run whose output can be waited for. `with` ends what is left of it."""

    def __init__(self, ranks: int, *flags, log: pathlib.Path):
        self._log = log
        with open(log, "wb") as output:
            self.process = subprocess.Popen(command(ranks, *flags), stdout=output, stderr=subprocess.STDOUT, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        for pid in [*self.ranks(), self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def ranks(self) -> list[int]:
        return ranks_of(self.process.pid)

    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, pattern: str, timeout_s: float = 60) -> None:
        deadline = time.monotonic() + timeout_s
        while not re.search(pattern, self.output(), re.MULTILINE):
            assert time.monotonic() < deadline and self.process.poll() is None, f"no '{pattern}'\n{self.output()}"
            time.sleep(0.005)

    def end(self) -> tuple[int, float]:
        """The exit code, and after how long."""
        start = time.monotonic()
        return self.process.wait(timeout=60), time.monotonic() - start


def ranks_of(launcher: int) -> list[int]:
    """The processes of the program that this one has started, or its own, by rank. An mpirun gives each rank a session of its own."""
    parents, ranks = {}, {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            name, _, rest = (folder / "stat").read_text().partition("(")[2].rpartition(")")
            parents[int(folder.name)] = int(rest.split()[1])
            if name == "trireme":
                environment = (folder / "environ").read_bytes().split(b"\0")
                ranks[int(folder.name)] = next((int(each[9:]) for each in environment if each.startswith(b"PMI_RANK=")), 0)

    def is_ours(pid: int) -> bool:
        while pid not in (launcher, 0):
            pid = parents.get(pid, 0)
        return pid == launcher

    return sorted(filter(is_ours, ranks), key=ranks.__getitem__)


def json_of(path: pathlib.Path):
    return json.loads(path.read_text())


def ledger(path: pathlib.Path) -> list[tuple[int, int, int]]:
    """(step, epoch, sample) of every line of every rank."""
    lines = [line for part in sorted(path.parent.glob(path.name + ".*")) for line in part.read_text().splitlines()]
    return [tuple(map(int, line.split()[:3])) for line in lines]


def python(code: str, *arguments) -> str:
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def weights(folder: pathlib.Path) -> dict:
    return pytest.importorskip("safetensors.torch").load_file(folder / "model.safetensors")


def same_weights(a: pathlib.Path, b: pathlib.Path) -> bool:
    return (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()
