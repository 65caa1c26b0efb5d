"""TensorBoard's own reader of event files, in a process of its own: `read_events.py FOLDER` prints what it finds as JSON."""

import json
import os
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[2] / ".venv" / "tensorboard"


def read_with_tensorboard(events: pathlib.Path) -> dict:
    """{"scalars": {tag: [[step, value], ...]}}"""
    import pytest

    if not FOLDER.exists():
        pytest.skip("tensorboard is not installed: pip install --no-deps --target .venv/tensorboard -r tests/requirements-tensorboard.txt")
    environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
    done = subprocess.run([sys.executable, __file__, events], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main() -> None:
    from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

    accumulator = EventAccumulator(sys.argv[1], size_guidance={SCALARS: 0})
    accumulator.Reload()
    tags = accumulator.Tags()
    scalars = {tag: [[event.step, event.value] for event in accumulator.Scalars(tag)] for tag in tags["scalars"]}
    print(json.dumps({"scalars": scalars}))


if __name__ == "__main__":
    main()
