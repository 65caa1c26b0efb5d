"""Files for the examples, made up by rules that a tiny model learns in seconds, and a vocabulary for them."""

import math
import pathlib
import random
from collections import Counter

FILLERS = ["one", "the", "went", "saw", "some", "then", "here", "old", "more", "very"]
TOPICS = {"weather": ["rain", "snow", "wind"], "food": ["soup", "bread", "salt"], "music": ["song", "drum", "flute"]}

# Two pieces each. The first says what a word is, the second nothing.
STEMS = {"PER": ["ann", "bob", "eve"], "LOC": ["rom", "par", "kyo"], "O": ["tab", "lam", "cup"]}
ENDINGS = ["ix", "or", "us"]

# With different first letters: all others of a word follow from what came before.
WORDS = ["amber", "brook", "cloud", "delta", "ember", "frost", "grain", "haven"]

PIECES = [*FILLERS, *(word for words in TOPICS.values() for word in words), *(stem for stems in STEMS.values() for stem in stems)]
PIECES += [f"##{ending}" for ending in ENDINGS]


def write_texts(path: pathlib.Path, count: int, seed: int) -> pathlib.Path:
    """label<TAB>text: one word of the label's among others that say nothing. Labels are equally many: chance is a third."""
    draw = random.Random(seed)
    with path.open("w") as file:
        for number in range(count):
            label = list(TOPICS)[number % len(TOPICS)]
            words = draw.choices(FILLERS, k=draw.randint(2, 9))
            words.insert(draw.randint(0, len(words)), draw.choice(TOPICS[label]))
            file.write(f"{label}\t{' '.join(words)}\n")
    return path


def write_sentences(path: pathlib.Path, count: int, seed: int) -> pathlib.Path:
    """word<TAB>label: half of the words are O, persons have one word or two, places one."""
    draw = random.Random(seed)
    with path.open("w") as file:
        for _ in range(count):
            for _ in range(draw.randint(2, 5)):
                kind = draw.choice(["PER", "LOC", "O", "O"])
                for place in range(draw.randint(1, 2) if kind == "PER" else 1):
                    label = "O" if kind == "O" else f"{'I' if place else 'B'}-{kind}"
                    file.write(f"{draw.choice(STEMS[kind])}{draw.choice(ENDINGS)}\t{label}\n")
                file.write(f"{draw.choice(FILLERS)}\tO\n")  # so that two names never touch
            file.write("\n")
    return path


def write_prose(path: pathlib.Path, words: int, seed: int) -> pathlib.Path:
    draw = random.Random(seed)
    path.write_text("".join(f"{draw.choice(WORDS)} " for _ in range(words)))
    return path


def entropy_of_letters(text: str) -> float:
    """Nats a letter for somebody who knows how frequent letters are, and nothing else."""
    return -sum(count / len(text) * math.log(count / len(text)) for count in Counter(text).values())
