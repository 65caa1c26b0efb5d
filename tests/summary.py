#!/usr/bin/env python3
"""Adds up JUnit reports: tests/summary.py REPORT... prints the failed tests and, last, "N passed, N failed, N skipped".

A report that is missing or broken counts as one failure: its runner did not get to its end.
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator


def outcomes(report: str) -> Iterator[tuple[str, str]]:
    """(name, "passed", "failed" or "skipped") of each test."""
    try:
        root = ElementTree.parse(report).getroot()
    except (OSError, ElementTree.ParseError) as error:
        yield f"{report}: {error}", "failed"
        return
    for case in root.iter("testcase"):
        # ctest's class is the name again, to which it adds what GoogleTest says of a parameter.
        names = dict.fromkeys((case.get("classname", ""), case.get("name", "")))
        name = ".".join(names).partition("  # ")[0]
        if case.find("failure") is not None or case.find("error") is not None:
            yield name, "failed"
        elif case.find("skipped") is not None:
            yield name, "skipped"
        else:
            yield name, "passed"


def main() -> int:
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for report in sys.argv[1:]:
        for name, outcome in outcomes(report):
            counts[outcome] += 1
            if outcome == "failed":
                print(f"failed: {name}")
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
