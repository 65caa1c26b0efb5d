"""What the project wants of a training step, and whether a run shows it."""

# (case, the peer, times as fast as it)
FASTER = [
    ("minilm/full/fp32", "torch", 2.0),
    ("base/full/fp32", "torch", 1.5),
    ("minilm/squad/fp32", "torch", 5.0),
    ("base/squad/fp32", "torch", 3.2),
    ("minilm/squad/fp32", "grouped", 1.6),
    ("base/squad/fp32", "grouped", 1.3),
    ("minilm/full/bf16", "trireme-fp32", 0.97),
    ("minilm/squad/bf16", "trireme-fp32", 0.97),
    ("base/full/bf16", "trireme-fp32", 0.97),
    ("base/squad/bf16", "trireme-fp32", 0.97),
]
# The same on a CPU without bf16 instructions, where torch's own bf16 is slow.
FASTER_WITHOUT_BF16 = [("minilm/full/bf16", "torch", 4.0)]
# (case, share of the FMA peak)
SHARES = [("base/full/fp32", 0.60), ("minilm/full/fp32", 0.55), ("base/squad/fp32", 0.60), ("minilm/squad/fp32", 0.55)]
# (case, share of torch's peak memory, padded)
MEMORY = [("base/squad/fp32", 0.35)]


def check(records: dict[str, dict], has_bf16: bool) -> bool:
    """Prints a line per target that the run, on a CPU with bf16 instructions or without, can speak of; whether all are met."""
    lines = []
    for case, peer, wanted in FASTER + ([] if has_bf16 else FASTER_WITHOUT_BF16):
        if {peer, "trireme"} <= records.get(case, {}).keys():
            reached = records[case][peer]["seconds_per_sequence"] / records[case]["trireme"]["seconds_per_sequence"]
            lines.append((reached >= wanted, f"{case} against {peer}: {reached:.2f}x, wanted {wanted}x"))
    for case, wanted in SHARES:
        if "trireme" in records.get(case, {}):
            reached = records[case]["trireme"]["gflops"] / records[case]["trireme"]["fma_peak_gflops"]
            lines.append((reached >= wanted, f"{case}: {100 * reached:.0f} % of the FMA peak, wanted {100 * wanted:.0f} %"))
    for case, wanted in MEMORY:
        if {"torch", "trireme"} <= records.get(case, {}).keys():
            reached = records[case]["trireme"]["peak_bytes"] / records[case]["torch"]["peak_bytes"]
            lines.append((reached <= wanted, f"{case}: {reached:.2f} of torch's peak memory, wanted {wanted}"))
    for met, line in lines:
        print("PASS" if met else "FAIL", line)
    return all(met for met, _ in lines)
