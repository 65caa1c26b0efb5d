#!/usr/bin/env python3
"""Adds up JUnit reports: tests/summary.py REPORT... prints the failed tests, the seconds that each folder of tests/ took and, last,
"N passed, N failed, N skipped".

A report that is missing or broken counts as one failure: its runner did not get to its end.
"""

import collections
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator


def outcomes(report: str) -> Iterator[tuple[str, str, str, float]]:
    """(name, "passed", "failed" or "skipped", folder, seconds) of each test; a unit test, which is ctest's, has no folder."""
    try:
        root = ElementTree.parse(report).getroot()
    except (OSError, ElementTree.ParseError) as error:
        yield f"{report}: {error}", "failed", "", 0.0
        return
    for case in root.iter("testcase"):
        # ctest's class is the name again, to which it adds what GoogleTest says of a parameter.
        names = dict.fromkeys((case.get("classname", ""), case.get("name", "")))
        name = ".".join(names).partition("  # ")[0]
        is_failed = case.find("failure") is not None or case.find("error") is not None
        outcome = "failed" if is_failed else "skipped" if case.find("skipped") is not None else "passed"
        yield name, outcome, folder_of(case.get("classname", "")), float(case.get("time", 0))


def folder_of(module: str) -> str:
    """kubernetes.test_jobs is pytest's name of tests/kubernetes/test_jobs.py."""
    before, is_pytests, _ = f".{module}".partition(".test_")
    return "tests" + before.replace(".", "/") if is_pytests else ""


def main() -> int:
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    seconds: collections.Counter = collections.Counter()
    for report in sys.argv[1:]:
        for name, outcome, folder, took in outcomes(report):
            counts[outcome] += 1
            seconds[folder] += took
            if outcome == "failed":
                print(f"failed: {name}")
    del seconds[""]
    if seconds:
        print("seconds: " + ", ".join(f"{folder} {took:.0f}" for folder, took in seconds.most_common()))
    print(", ".join(f"{count} {outcome}" for outcome, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
