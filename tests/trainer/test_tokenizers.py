"""The trainer's tokenizers give the ids and the offsets of Hugging Face's tokenizers package, from the same files."""

import pytest

from ..huggingface.questions import minilm
from . import texts
from .tokens import PROGRAM, compare, load


@pytest.fixture(autouse=True)
def built():
    if not PROGRAM.exists():
        pytest.fail(f"{PROGRAM} is not built")


def squad() -> list[str]:
    if not texts.squad_files():
        pytest.skip(f"SQuAD is not in {texts.SQUAD}")
    return texts.squad_texts()


def test_minilm_on_squad():
    compare(minilm(), load(minilm() / "tokenizer.json"), squad())


def test_minilm_on_every_code_point():
    compare(minilm(), load(minilm() / "tokenizer.json"), texts.code_points())


def test_minilm_on_hard_texts():
    compare(minilm(), load(minilm() / "tokenizer.json"), texts.HARD)
