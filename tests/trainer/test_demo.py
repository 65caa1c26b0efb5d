"""demo.sh as a user runs it: on questions of its own, and on files with questions that have no answer."""

import re
import shutil
import subprocess
import sys
import time

import pytest

from .runs import REPOSITORY, needs_program

pytestmark = [needs_program, pytest.mark.long]


def demo(*arguments) -> tuple[dict, list]:
    """(EM, F1) before and after, and the questions' answers."""
    done = subprocess.run([REPOSITORY / "demo.sh", *arguments], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    scores = {name: tuple(map(float, numbers.split())) for name, numbers in re.findall(r"^(before|after) +([\d.]+ +[\d.]+)$", done.stdout, re.MULTILINE)}
    return scores, re.findall(r"\?\n  (.+)  [01]\.\d{3}$", done.stdout, re.MULTILINE)


def test_questions_of_its_own():
    """It learns; at most five minutes after the build; the second time it does not train again."""
    for folder in (REPOSITORY / "build" / "demo").glob("*/model"):
        shutil.rmtree(folder.parent)
    start = time.monotonic()
    scores, answers = demo()
    first = time.monotonic() - start
    assert scores["after"][1] > 60 > 40 > scores["before"][1], scores
    assert len(answers) == 3 and first < 300
    start = time.monotonic()
    assert demo() == (scores, answers)
    assert time.monotonic() - start < 30


def test_questions_without_answers(tmp_path):
    make = [sys.executable, REPOSITORY / "tools" / "make_questions.py", "--v2", "--train", "40", "--dev", "20", "--out", tmp_path]
    subprocess.run(make, check=True)
    scores, answers = demo("--train_file", tmp_path / "train.json", "--validation_file", tmp_path / "dev.json")
    assert scores.keys() == {"before", "after"} and len(answers) == 3
