"""What is told, on stderr, each thing once."""

from __future__ import annotations

import functools
import sys


def say(line: str) -> None:
    print(f"trireme: optimize: {line}", file=sys.stderr)


@functools.cache
def say_once(line: str) -> None:
    say(line)
