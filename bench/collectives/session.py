"""One run: the libraries that take part, the place they run in, and everything measured so far."""

import dataclasses
import statistics

from libraries import Library, Request, ThisHost

KEY = ("library", "ranks", "op", "dtype", "placement", "bytes", "calls")
# A virtual machine's host moves its cores: what one library took while they were near and another while they were far apart cannot be compared. Then the
# libraries have to take their turns again, so often, with the sizes that it happened to.
MOVED_US = 0.08
MOST_TURNS_AGAIN = 8


class Session:
    def __init__(self, libraries: dict[str, Library], place: ThisHost, repeat: int):
        self.libraries = libraries
        self.place = place
        self.repeat = repeat
        self.versions: dict[str, str] = {}
        self.results: list[dict] = []

    def measure(self, request: Request, names: list[str] | None = None) -> list[dict]:
        """Alternates between the libraries, so that a noisy moment hits all; one result per library and size."""
        results = []
        for _ in range(self.repeat):
            turns = self._take_turns(request, names)
            for _ in range(MOST_TURNS_AGAIN):
                moved = sizes_that_moved(turns)
                if not moved:
                    break
                turns = [result for result in turns if result["bytes"] not in moved]
                turns += self._take_turns(dataclasses.replace(request, sizes=tuple(sorted(moved))), names)
            results += turns
        merged = merge(results)
        self.results += merged
        return merged

    def _take_turns(self, request: Request, names: list[str] | None) -> list[dict]:
        results = []
        for name in self._chosen(names):
            version, measured = self.libraries[name].run(request, self.place)
            self.versions[name] = version or self.versions.get(name, "")
            results += measured
        return results

    def _chosen(self, names: list[str] | None) -> list[str]:
        if names:
            return [name for name in names if name in self.libraries]
        return [name for name, library in self.libraries.items() if not library.on_request]


def sizes_that_moved(turns: list[dict]) -> set[int]:
    """Those whose ranks met in one time in one of these results and in another in the next."""
    by_size: dict[int, list[float]] = {}
    for result in turns:
        by_size.setdefault(result["bytes"], []).extend(result.get("meeting_us", []))
    return {size for size, times in by_size.items() if times and max(times) - min(times) > MOVED_US}


def merge(results: list[dict]) -> list[dict]:
    """One result per case: the median of the repeats' medians, the widest spread; failed, if one of them failed."""
    repeats = {}
    for result in results:
        repeats.setdefault(tuple(result[name] for name in KEY), []).append(result)
    return [_merge_case(runs) for runs in repeats.values()]


def _merge_case(runs: list[dict]) -> dict:
    for run in runs:
        if "median_us" not in run:
            return run
    return {
        **runs[0],
        "iterations": sum(run["iterations"] for run in runs),
        "median_us": statistics.median(run["median_us"] for run in runs),
        "p10_us": min(run["p10_us"] for run in runs),
        "p90_us": max(run["p90_us"] for run in runs),
        "meeting_us": sorted(time for run in runs for time in run.get("meeting_us", [])),
    }
