"""The same texts through print_tokens and through Hugging Face's tokenizers package, to be compared."""

import os
import pathlib
import subprocess

import numpy as np
import tokenizers

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TRIREME_BUILD_DIR", REPOSITORY / "build" / "release")).resolve()
PROGRAM = BUILD / "tests" / "trainer" / "print_tokens"
SECONDS = 300


def run_program(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess:
    return subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True, timeout=SECONDS)


def ours(directory: pathlib.Path, texts: list[str]) -> list[np.ndarray]:
    """For each text its tokens: id, first byte, byte after the last."""
    coded = [text.encode() for text in texts]
    run = run_program(directory, "-", stdin=b"".join(b"%d\n%s" % (len(text), text) for text in coded))
    assert run.returncode == 0, run.stderr.decode()
    lines = run.stdout.split(b"\n")[:-1]
    assert len(lines) == len(texts)
    numbers = np.fromstring(run.stdout.replace(b"\n", b" "), dtype=np.int64, sep=" ").reshape(-1, 3)
    ends = np.cumsum([line.count(b" ") // 3 for line in lines])
    return np.split(numbers, ends[:-1])


def byte_positions(text: str) -> np.ndarray:
    """Where each code point begins in UTF-8, and where the text ends."""
    points = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    return np.concatenate([[0], np.cumsum(1 + (points > 0x7F) + (points > 0x7FF) + (points > 0xFFFF))])


def theirs(tokenizer: tokenizers.Tokenizer, texts: list[str]) -> list[np.ndarray]:
    result = []
    for text, encoding in zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False)):
        ids = np.array(encoding.ids, dtype=np.int64).reshape(-1, 1)
        result.append(np.hstack([ids, byte_positions(text)[np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)]]))
    return result


def load(path: pathlib.Path) -> tokenizers.Tokenizer:
    """tokenizer.json, to encode whole texts."""
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def compare(directory: pathlib.Path, tokenizer: tokenizers.Tokenizer, texts: list[str]) -> None:
    """Fails with the first text, and the first token in it, that differ."""
    for text, mine, wanted in zip(texts, ours(directory, texts), theirs(tokenizer, texts), strict=True):
        if np.array_equal(mine, wanted):
            continue
        mine, wanted = mine.tolist(), wanted.tolist()
        place = next((i for i, (a, b) in enumerate(zip(mine, wanted)) if a != b), min(len(mine), len(wanted)))
        around = text.encode()[max(0, wanted[place][1] - 20) : wanted[place][2] + 20] if place < len(wanted) else b""
        raise AssertionError(
            f"token {place} of {text[:60]!a}: ours {mine[place : place + 4]}, Hugging Face's {wanted[place : place + 4]},"
            f" around {around.decode(errors='replace')!a}"
        )
