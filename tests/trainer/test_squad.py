"""The trainer's data and scores against Python's: transformers' fast tokenizer, numpy, and the official metrics that transformers carries."""

import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import types
import unicodedata

import numpy as np
import pytest

from ..huggingface.questions import minilm
from . import families, reference, tokens
from .texts import SQUAD

PROGRAMS = tokens.PROGRAM.parent

# Upper case, accents, letters of two to four bytes, signs that belong to words or not, spaces of every kind, marks.
WORDS = "The a an of Große ÉCOLE naïve Straße İstanbul ΣΑΣ 東京タワー 🚣‍♀️ e\u0301te x² $5.3bn U.S. “quoted” 1,000 don't supercalifragilistic — ½ _a_ ﬁn".split()
SPACES = [" ", " ", " ", "  ", "\n", "\u00a0", "\t", "\u3000"]


def squad(name: str) -> dict:
    path = SQUAD / name
    if not path.exists():
        pytest.skip(f"{name} is not in {SQUAD}")
    return json.loads(path.read_text())


def run(program: str, *arguments) -> str:
    path = PROGRAMS / program
    if not path.exists():
        pytest.fail(f"{path} is not built")
    return subprocess.run([path, *map(str, arguments)], capture_output=True, text=True, check=True, timeout=300).stdout


def text(chance: random.Random, words: int) -> str:
    return "".join(chance.choice(WORDS) + chance.choice(SPACES) for _ in range(words))


def generated_rows(count: int, seed: int) -> list[dict]:
    """Questions about contexts of any length; answers are any part of them, seldom whole words; one question in five has none."""
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        if number % 3 == 0:
            context = text(chance, chance.choice([1, 5, 30, 120]))
        start = chance.randrange(len(context))
        answer = context[start : start + chance.choice([1, 4, 20])]
        answers = {"text": [answer], "answer_start": [start]} if chance.random() < 0.8 else {"text": [], "answer_start": []}
        question = chance.choice(["", "  ", "\u00a0\n"]) + text(chance, chance.randint(0, 8))
        rows.append({"id": f"q{number}", "title": "T", "context": context, "question": question, "answers": answers})
    return rows


def write(path: pathlib.Path, value) -> pathlib.Path:
    path.write_text(json.dumps(value))
    return path


# Windows of text


@pytest.fixture(scope="module", params=["minilm", "roberta", "xlm_roberta"])
def model(request, tmp_path_factory):
    """A directory, and the tokenizer that transformers makes of it."""
    transformers = pytest.importorskip("transformers")
    if request.param == "minilm":
        return minilm(), transformers.AutoTokenizer.from_pretrained(minilm())
    directory, made = families.save(getattr(families, request.param)(), tmp_path_factory.mktemp(request.param))
    return directory, transformers.PreTrainedTokenizerFast(tokenizer_object=made, cls_token="<s>", pad_token="<pad>")


def bytes_before(context: str) -> list[int]:
    return [0, *itertools.accumulate(len(character.encode()) for character in context)]


def assert_same_windows(model, questions: pathlib.Path, rows: list[dict], max_length: int, doc_stride: int):
    directory, tokenizer = model
    options = {"model": str(directory), "questions": str(questions), "max_length": max_length, "doc_stride": doc_stride, "with_labels": True}
    lines = run("print_features", json.dumps({**options, "threads": 2})).splitlines()
    windows = reference.make_windows(tokenizer, rows, max_length, doc_stride)
    places = {row["id"]: bytes_before(row["context"]) for row in rows}
    assert len(lines) == len(windows) >= len(rows)
    # Of models without token types, tokenizers leave others than 0 in all windows but the first, and transformers does not hand them on.
    has_types = 1 in windows[0].types
    for line, window in zip(lines, windows):
        expected = {
            "id": window.id,
            "ids": window.ids,
            "types": window.types if has_types else [0] * len(window.ids),
            "context": list(window.context),
            "spans": [[places[window.id][place] for place in offset] for offset in window.offsets],
            "labels": list(window.labels),
        }
        assert json.loads(line) == expected
    return windows


def test_windows_of_generated_text(model, tmp_path):
    rows = [row for row in generated_rows(240, seed=1) if len(model[1](row["question"])["input_ids"]) < 60]
    questions = write(tmp_path / "flat.json", {"data": rows})
    windows = assert_same_windows(model, questions, rows, 96, 24)
    assert len(windows) > len(rows) + 50, "long contexts have several"
    # Cases that must be among them: no answer in the window, an answer inside, one that is the last token.
    assert any(window.labels == (0, 0) for window in windows)
    assert any(0 < window.labels[0] <= window.labels[1] for window in windows)
    assert any(window.labels[0] == len(window.ids) - 1 > window.labels[1] for window in windows)
    assert_same_windows(model, questions, rows, 384, 128)


def test_windows_of_squad(model, tmp_path):
    document = squad("train-part-v1.1.json")
    document["data"] = document["data"][::15]
    rows = reference.read_rows(document)
    assert_same_windows(model, write(tmp_path / "nested.json", document), rows, 384, 128)
    short = [row for row in rows[::8] if len(model[1](row["question"])["input_ids"]) < 40]
    windows = assert_same_windows(model, write(tmp_path / "flat.json", {"data": short}), short, 100, 50)
    assert len(windows) > 2 * len(short)


def test_threads_make_the_same_windows(tmp_path):
    rows = generated_rows(300, seed=2)
    options = {"model": str(minilm()), "questions": str(write(tmp_path / "flat.json", {"data": rows})), "with_labels": True, "summary": True}
    summaries = [json.loads(run("print_features", json.dumps({**options, "threads": threads}))) for threads in (1, 2, 7)]
    assert len({summary["fingerprint"] for summary in summaries}) == 1
    assert summaries[0]["questions"] == len(rows)


@pytest.mark.long
def test_as_many_questions_as_squad_has_take_seconds(tmp_path):
    """On all cores, from the file to the windows. Contexts are longer than SQuAD's, which have 120 words on average."""
    make = [sys.executable, tokens.REPOSITORY / "tools" / "make_questions.py", "--train", "88000", "--dev", "5", "--out", tmp_path]
    subprocess.run(make, check=True, capture_output=True, timeout=300)
    document = json.loads((tmp_path / "train.json").read_text())
    paragraphs = [paragraph for article in document["data"] for paragraph in article["paragraphs"]]
    short = [paragraph["context"] for paragraph in paragraphs]
    for number, paragraph in enumerate(paragraphs):
        while len(paragraph["context"].split()) < 100:
            number += 1
            paragraph["context"] += " " + short[number % len(short)]
    options = {"model": str(minilm()), "questions": str(write(tmp_path / "long.json", document)), "with_labels": True, "summary": True}
    summary = json.loads(run("print_features", json.dumps({**options, "threads": len(os.sched_getaffinity(0))})))
    words = sum(len(paragraph["context"].split()) for paragraph in paragraphs) / len(paragraphs)
    print(f"{words:.0f} words on average, {summary}")
    assert summary["questions"] == 88000 and words > 110
    assert summary["reading"] + summary["tokenizing"] < 30


def test_a_question_without_room_is_named(tmp_path):
    rows = generated_rows(3, seed=3)
    rows[1]["question"] = "why " * 400
    options = {"model": str(minilm()), "questions": str(write(tmp_path / "flat.json", {"data": rows}))}
    ended = subprocess.run([PROGRAMS / "print_features", json.dumps(options)], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1
    assert "question q1 has 400 tokens" in ended.stderr


# Answers from logits


def draw_logits(windows: list, seed: int) -> list:
    """Distinct within a window: the order of equal ones is nobody's promise. Some windows would rather not answer."""
    draw = np.random.default_rng(seed)
    logits = []
    for window in windows:
        pair = [draw.permutation(np.linspace(-6, 6, len(window.ids), dtype=np.float32)) + draw.normal(0, 0.01, len(window.ids)).astype(np.float32) for _ in range(2)]
        assert all(len(set(values.tolist())) == len(values) for values in pair)
        for values in pair:
            values[0] = draw.choice(np.float32([-8, 2, 7])) + draw.normal(0, 0.01)
        logits.append(tuple(pair))
    return logits


def read_as_python_writes(path: pathlib.Path) -> dict:
    text = path.read_text()
    value = json.loads(text)
    assert text == json.dumps(value, indent=4) + "\n"
    return value


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"n_best_size": 3, "max_answer_length": 4},
        {"version_2_with_negative": True},
        {"version_2_with_negative": True, "n_best_size": 2, "null_score_diff_threshold": 0.7},
        {"version_2_with_negative": True, "n_best_size": 1, "max_answer_length": 2, "null_score_diff_threshold": -3.3},
    ],
    ids=lambda options: ", ".join(f"{name} {value}" for name, value in options.items()) or "defaults",
)
def test_answers(model, tmp_path, options):
    rows = generated_rows(60, seed=4)
    windows = reference.make_windows(model[1], rows, 200, 40)
    logits = draw_logits(windows, seed=5)
    np.concatenate([values for pair in logits for values in pair]).tofile(tmp_path / "logits")
    files = {"model": str(model[0]), "questions": str(write(tmp_path / "flat.json", {"data": rows})), "logits": str(tmp_path / "logits"), "folder": str(tmp_path)}
    run("print_features", json.dumps({**files, **options, "max_length": 200, "doc_stride": 40}))

    version_2 = options.get("version_2_with_negative", False)
    of_id = {row["id"]: [i for i, window in enumerate(windows) if window.id == row["id"]] for row in rows}
    predictions = read_as_python_writes(tmp_path / "eval_predictions.json")
    best = read_as_python_writes(tmp_path / "eval_nbest_predictions.json")
    odds = read_as_python_writes(tmp_path / "eval_null_odds.json") if version_2 else {}
    assert list(predictions) == list(best) == [row["id"] for row in rows]
    assert list(odds) == [row["id"] for row in rows] * version_2
    for row in rows:
        numbers = of_id[row["id"]]
        limits = (options.get("n_best_size", 20), options.get("max_answer_length", 30), np.float32(options.get("null_score_diff_threshold", 0)))
        text, expected, null = reference.answer(row["context"], [windows[i] for i in numbers], [logits[i] for i in numbers], version_2, *limits)
        assert predictions[row["id"]] == text
        assert not version_2 or odds[row["id"]] == float(null)
        assert len(best[row["id"]]) == len(expected)
        for one, other in zip(best[row["id"]], expected):
            assert {key: one[key] for key in ("text", "start_logit", "end_logit")} == {key: other[key] for key in ("text", "start_logit", "end_logit")}
            assert one["probability"] == pytest.approx(float(other["probability"]), rel=1e-5, abs=1e-12)
    if version_2:
        assert 0 < sum(not text for text in predictions.values()) < len(rows), "both kinds of answers"
    elif options:
        assert "empty" in predictions.values()


# Scores


@pytest.fixture(scope="module")
def metrics():
    return pytest.importorskip("transformers.data.metrics.squad_metrics")


def test_words_of_every_character(metrics, tmp_path):
    """Beside articles and letters, so that lower case, word boundaries and spaces all show."""
    characters = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    strings = [f"{c}The {c}X {c} an{c}A{c}" for c in characters]
    words = json.loads(run("score_predictions", "words", write(tmp_path / "strings.json", strings)))
    assert len(words) == len(strings) > 100_000
    assert [c for c, found, string in zip(characters, words, strings) if found != metrics.get_tokens(string)] == []


def test_words_of_generated_text(metrics, tmp_path):
    chance = random.Random(6)
    strings = ["", " ", *(text(chance, chance.randint(1, 9)) for _ in range(2000))]
    words = json.loads(run("score_predictions", "words", write(tmp_path / "strings.json", strings)))
    assert words == [metrics.get_tokens(string) for string in strings]


def spoilt(chance: random.Random, answers: list[str], context: str) -> str:
    """A prediction that is right, nearly right, wrong, or none."""
    kind = chance.random()
    if kind < 0.2 or not answers:
        return "" if chance.random() < 0.5 else context[: chance.randint(1, 20)]
    answer = chance.choice(answers)
    if kind < 0.5:
        return chance.choice(["the {}", "{}!", " {} ", "A {}."]).format(answer.upper())
    words = answer.split() + context.split()[: chance.randint(0, 3)]
    return " ".join(chance.sample(words, chance.randint(1, len(words)))) if words else ""


def version_1(metrics, rows: list[dict], predictions: dict[str, str]) -> dict[str, float]:
    """The official script of version 1.1 differs in two answers without a word: they match exactly, and have no F1."""
    exact = f1 = 0.0
    for row in rows:
        predicted = predictions[row["id"]]
        exact += max(metrics.compute_exact(answer, predicted) for answer in row["answers"]["text"])
        f1 += max(metrics.compute_f1(answer, predicted) if metrics.get_tokens(answer) else 0 for answer in row["answers"]["text"])
    return {"exact_match": 100 * exact / len(rows), "f1": 100 * f1 / len(rows)}


def assert_same_scores(metrics, rows: list[dict], folder: pathlib.Path, seed: int):
    chance = random.Random(seed)
    order = chance.sample(rows, len(rows))  # not that of the questions
    predictions = {row["id"]: spoilt(chance, row["answers"]["text"], row["context"]) for row in order}
    answers = write(folder / "predictions.json", predictions)

    answered = [row for row in rows if row["answers"]["text"]]
    found = json.loads(run("score_predictions", "1.1", write(folder / "answered.json", {"data": answered}), answers))
    assert found == pytest.approx(version_1(metrics, answered, predictions), rel=1e-12)
    assert list(found) == ["exact_match", "f1"]
    assert 10 < found["exact_match"] < found["f1"] < 90, "predictions of every kind"

    questions = write(folder / "questions.json", {"data": rows})
    examples = [types.SimpleNamespace(qas_id=row["id"], answers=[{"text": text} for text in row["answers"]["text"]]) for row in rows]
    found = json.loads(run("score_predictions", "2.0", questions, answers))
    expected = metrics.squad_evaluate(examples, predictions)
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, rel=1e-12)


def test_scores_of_generated_answers(metrics, tmp_path):
    assert_same_scores(metrics, generated_rows(1000, seed=7), tmp_path, seed=8)


def test_scores_of_squad(metrics, tmp_path):
    rows = reference.read_rows(squad("dev-half-v1.1.json"))
    assert_same_scores(metrics, rows, tmp_path, seed=9)


def test_scores_of_right_answers(tmp_path):
    """The whole file as it was published, and an answer to each question out of those that it gives."""
    rows = reference.read_rows(squad("dev-half-v1.1.json"))
    predictions = write(tmp_path / "predictions.json", {row["id"]: row["answers"]["text"][-1] for row in rows})
    found = json.loads(run("score_predictions", "1.1", SQUAD / "dev-half-v1.1.json", predictions))
    assert found["exact_match"] == 100
    assert found["f1"] > 99.9  # an answer that is nothing but an article has none
