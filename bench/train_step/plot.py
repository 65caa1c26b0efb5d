"""Time per sequence of every variant as bars, a panel for each case, from bench/results/train_step.json. Needs matplotlib."""

import json
import pathlib

import matplotlib

matplotlib.use("svg")
# Readable text in the file, and the same bytes for the same data.
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "trireme", "font.size": 9})

import matplotlib.pyplot as plt  # noqa: E402  (after the choice of a backend)

LABELS = {
    "torch": "torch, padded",
    "grouped": "torch, grouped",
    "compile": "torch.compile",
    "ipex": "IPEX 2.8",
    "trireme-fp32": "Trireme, fp32",
    "deterministic": "Trireme, deterministic",
    "blas": "Trireme, torch's products",
    "trireme": "Trireme",
}
MODELS = {"minilm": "MiniLM-L6-H384", "base": "BERT-base", "large": "BERT-large"}
LENGTHS = {"full": "384 tokens", "squad": "SQuAD's lengths"}
OURS, THEIRS = "#0b5fa5", "#9aa1ab"


def draw(results: pathlib.Path, to: pathlib.Path) -> None:
    cases = json.loads(results.read_text())
    order = [f"{model}/{lengths}/{dtype}" for dtype in ("fp32", "bf16") for model in MODELS for lengths in LENGTHS]
    shown = [case for case in order if case in cases]
    columns = 2
    rows = -(-len(shown) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(9, 1.9 * rows), squeeze=False, layout="constrained")
    for axes in grid.flat[len(shown) :]:
        axes.axis("off")
    for axes, case in zip(grid.flat, shown, strict=False):
        model, lengths, dtype = case.split("/")
        variants = cases[case]["variants"]
        names = [name for name in LABELS if name in variants]
        times = [variants[name]["seconds_per_sequence"] * 1e3 for name in names]
        bars = axes.barh([LABELS[name] for name in names], times, color=[OURS if "Trireme" in LABELS[name] else THEIRS for name in names])
        axes.bar_label(bars, [f"{time:.0f}  ({time / times[-1]:.2f}x)" for time in times], padding=3, fontsize=8)
        axes.set_xlim(0, 1.3 * max(times))
        axes.invert_yaxis()
        axes.set_title(f"{MODELS[model]}, {LENGTHS[lengths]}, {dtype}", fontsize=9, loc="left")
        axes.set_xlabel("ms a sequence", fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(to, metadata={"Date": None})
    plt.close(figure)
