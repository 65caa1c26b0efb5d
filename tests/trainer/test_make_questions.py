"""tools/make_questions.py: its sets are valid, repeatable, apart from each other, and not to be answered without reading."""

import collections
import importlib.util
import json
import pathlib
import random
import re
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = REPOSITORY / "tools" / "make_questions.py"


def load():
    spec = importlib.util.spec_from_file_location("make_questions", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_questions = load()


def entries(made: dict):
    for article in made["data"]:
        for paragraph in article["paragraphs"]:
            for entry in paragraph["qas"]:
                yield paragraph["context"], entry


@pytest.fixture(scope="module")
def train():
    return make_questions.make_set("train", 2000, seed=1, v2=False)


@pytest.fixture(scope="module")
def dev():
    return make_questions.make_set("dev", 1000, seed=1, v2=False)


def test_the_program_writes_both_files_again_and_again(tmp_path):
    for name in ("once", "twice"):
        command = [sys.executable, "-I", SCRIPT, "--train", "73", "--dev", "31", "--seed", "5", "--out", tmp_path / name]
        subprocess.run(command, check=True, capture_output=True)
    for name, count in (("train.json", 73), ("dev.json", 31)):
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()
        assert len(list(entries(json.loads((tmp_path / "once" / name).read_text(encoding="utf-8"))))) == count


def test_answers_are_where_they_are_said_to_be(train, dev):
    for context, entry in [*entries(train), *entries(dev)]:
        (answer,) = entry["answers"]
        assert answer["text"] and context[answer["answer_start"] :].startswith(answer["text"])
        assert entry["question"].endswith("?") and entry["question"][0].isupper()


def test_ids_are_unique_and_stay(train):
    ids = [entry["id"] for _, entry in entries(train)]
    assert len(set(ids)) == len(ids)
    fewer = make_questions.make_set("train", 200, seed=1, v2=False)
    assert [entry["id"] for _, entry in entries(fewer)] == ids[:200]
    other = make_questions.make_set("train", 200, seed=2, v2=False)
    assert not set(ids) & {entry["id"] for _, entry in entries(other)}


def test_no_name_is_in_both_sets(train, dev):
    words = {split: {w for pool in make_questions.pools(split).values() for w in pool} for split in ("train", "dev")}
    assert not words["train"] & words["dev"]
    for made, others in ((train, words["dev"]), (dev, words["train"])):
        for context, entry in entries(made):
            assert not set(re.findall(r"\w+", context + " " + entry["question"])) & others


def literal(form: str) -> str:
    """The longest piece of a form that does not depend on its slots."""
    return max(re.split(r"\{[^}]*\}", form.lstrip("*")), key=len)


def test_some_forms_are_kept_for_the_development_set(train, dev):
    texts = {name: "\n".join(context + "\n" + entry["question"] for context, entry in entries(made)) for name, made in (("train", train), ("dev", dev))}
    kept = [form for topic in make_questions.TOPICS for forms in (topic.sentences, topic.intros) for form in forms if form.startswith("*")]
    assert len(kept) >= 2 * len(make_questions.TOPICS)
    assert not [form for form in kept if literal(form) in texts["train"]]
    assert not [form for form in kept if literal(form) not in texts["dev"]]


def test_every_form_makes_a_sentence(train, dev):
    for context, entry in [*entries(train), *entries(dev)]:
        for text in (context, entry["question"]):
            assert not re.search(r"[{}|*]|  |\ba [aeiou]|\ban [^aeiou]|\bthe the\b", text), text


def rebuilt(split: str, seed: int, number: int):
    """A paragraph, with what it was made from."""
    topic = make_questions.TOPICS[number % len(make_questions.TOPICS)]
    chance = random.Random(f"{seed}/{split}/{number}")
    _, context, subjects, spans = make_questions.make_paragraph(topic, split, chance, make_questions.pools(split))
    return topic, context, subjects, spans


def test_guessing_by_place_or_frequency_does_not_answer(dev):
    """Each guess knows the kind of the answer (a person, a place, ...) and takes one of that kind without looking at the question."""
    right = collections.Counter()
    asked = 0
    for number, article in enumerate(dev["data"]):
        topic, context, _, spans = rebuilt("dev", 1, number)
        (paragraph,) = article["paragraphs"]
        assert paragraph["context"] == context
        for entry in paragraph["qas"]:
            start = entry["answers"][0]["answer_start"]
            (kind,) = {topic.attributes[name] for subject in spans for name, span in subject.items() if span[0] == start}
            places = sorted(span for subject in spans for name, span in subject.items() if topic.attributes[name] == kind)
            assert len(places) >= 3, "there is too little to choose from"
            texts = [context[slice(*span)] for span in places]
            frequent = max(texts, key=lambda text: (context.count(text), -texts.index(text)))
            answer = entry["answers"][0]["text"]
            guesses = {"first": texts[0], "last": texts[-1], "most frequent": frequent}
            right.update(name for name, guess in guesses.items() if guess == answer)
            asked += 1
    assert asked == 1000
    assert max(right.values()) < 0.4 * asked, right


def test_a_question_fits_one_subject(dev):
    """What a question names stands for one subject alone: no value of a paragraph is there twice."""
    for number in range(len(dev["data"])):
        _, _, subjects, _ = rebuilt("dev", 1, number)
        values = [value for subject in subjects for value in subject.values()]
        assert len(set(values)) == len(values)


def test_a_third_has_no_answer_in_the_second_form():
    made = list(entries(make_questions.make_set("dev", 1000, seed=3, v2=True)))
    impossible = [(context, entry) for context, entry in made if entry["is_impossible"]]
    assert 250 < len(impossible) < 420
    assert all((entry["answers"] == []) == entry["is_impossible"] for _, entry in made)
    for context, entry in impossible:
        names = re.findall(r"[A-Z]\w+ [A-Z]\w+", entry["question"][1:])
        assert not any(name in context for name in names), entry["question"]
