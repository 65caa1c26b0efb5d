"""Feeds the parsers of what comes over the wire, and of files that others wrote, with libFuzzer's inventions, for a while each (preset fuzz)."""

import pathlib
import subprocess

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
BUILD = REPOSITORY / "build" / "fuzz"
SECONDS = 60


@pytest.mark.long
@pytest.mark.parametrize("source", sorted(REPOSITORY.glob("trireme/**/*_fuzz.cpp")), ids=lambda source: source.stem)
def test_parser(source, tmp_path):
    program = BUILD / source.parent.relative_to(REPOSITORY) / source.stem
    if not program.exists():
        pytest.fail(f"{program} is not built: cmake --preset fuzz && cmake --build --preset fuzz")
    # What it has found before is where it goes on.
    corpus = BUILD / "corpus" / source.stem
    corpus.mkdir(parents=True, exist_ok=True)
    seeds = [folder for folder in [source.with_name(f"{source.stem}_seeds")] if folder.exists()]
    limits = [f"-max_total_time={SECONDS}", "-timeout=10", "-rss_limit_mb=2048"]
    run = subprocess.run([program, *limits, f"-artifact_prefix={tmp_path}/", corpus, *seeds], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-4000:]
