"""The same texts through print_tokens and through Hugging Face's tokenizers package, to be compared."""

import os
import pathlib
import subprocess

import tokenizers

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TRIREME_BUILD_DIR", REPOSITORY / "build" / "release")).resolve()
PROGRAM = BUILD / "tests" / "trainer" / "print_tokens"
SECONDS = 300


def run_program(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess:
    return subprocess.run([PROGRAM, *map(str, arguments)], input=stdin, capture_output=True, timeout=SECONDS)


def ours(directory: pathlib.Path, texts: list[str]) -> list[list[tuple[int, int, int]]]:
    """For each text its tokens: id, first byte, byte after the last."""
    coded = [text.encode() for text in texts]
    run = run_program(directory, "-", stdin=b"".join(b"%d\n%s" % (len(text), text) for text in coded))
    assert run.returncode == 0, run.stderr.decode()
    lines = run.stdout.decode().split("\n")[:-1]
    assert len(lines) == len(texts)
    numbers = [list(map(int, line.split())) for line in lines]
    return [list(zip(line[0::3], line[1::3], line[2::3])) for line in numbers]


def byte_positions(text: str) -> list[int]:
    """Where each code point begins in UTF-8, and where the text ends."""
    positions = [0]
    for character in text:
        positions.append(positions[-1] + len(character.encode()))
    return positions


def theirs(tokenizer: tokenizers.Tokenizer, texts: list[str]) -> list[list[tuple[int, int, int]]]:
    result = []
    for text, encoding in zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False)):
        at = range(len(text) + 1) if text.isascii() else byte_positions(text)
        result.append([(number, at[begin], at[end]) for number, (begin, end) in zip(encoding.ids, encoding.offsets)])
    return result


def load(path: pathlib.Path) -> tokenizers.Tokenizer:
    """tokenizer.json, to encode whole texts."""
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def compare(directory: pathlib.Path, tokenizer: tokenizers.Tokenizer, texts: list[str]) -> None:
    """Fails with the first text, and the first token in it, that differ."""
    for text, mine, wanted in zip(texts, ours(directory, texts), theirs(tokenizer, texts)):
        if mine == wanted:
            continue
        place = next((i for i, (a, b) in enumerate(zip(mine, wanted)) if a != b), min(len(mine), len(wanted)))
        coded = text.encode()
        around = coded[max(0, wanted[place][1] - 20) : wanted[place][2] + 20] if place < len(wanted) else coded[-40:]
        raise AssertionError(
            f"token {place} of {text[:60]!a}: ours {mine[place : place + 4]}, Hugging Face's {wanted[place : place + 4]},"
            f" around {around.decode(errors='replace')!a} ({[tokenizer.id_to_token(t[0]) for t in wanted[place : place + 4]]!a})"
        )
