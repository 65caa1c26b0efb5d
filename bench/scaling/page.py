"""The tables of docs/scaling.md, from the results of run.py."""

import pathlib

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "scaling.md"
BEGIN, END = "<!-- written by bench/scaling/run.py --page -->\n", "<!-- end -->\n"


def table(header: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows]) + "\n"


def place(point: dict) -> str:
    if point["hosts"] == 1:
        return f"{point['ranks_per_host']} on one host"
    link = f"{point['mbit'] / 1000:g} Gb/s" if point["mbit"] >= 1000 else f"{point['mbit']:g} Mb/s"
    return f"{point['hosts']} hosts x {point['ranks_per_host']}, {link if point['mbit'] else 'no limit'}"


def measured(results: dict) -> str:
    rows = []
    for point in results["points"]:
        efficient = f"{100 * point['efficiency']:.0f} %" if "efficiency" in point else ""
        spread = f"{100 * point['spread']:.0f} %" if results["repeat"] > 1 else "-"
        row = [point["model"], place(point), f"{point['samples_per_second']:.2f}", f"{point['step_seconds']:.3f} s", spread, efficient]
        rows.append([*row, f"{point['predicted_seconds']:.3f} s", f"{100 * point['error']:+.0f} %"])
    return table(["model", "ranks", "samples/s", "step", "spread", "efficiency", "step by the model", "its error"], rows)


def parameters(results: dict) -> str:
    rows = [
        [name, f"{machine['flops_per_second'] / 1e9:.0f} GFLOP/s", f"{machine['seconds_per_parameter'] * 1e9:.2f} ns"]
        for name, machine in results["machines"].items()
    ]
    text = table(["model", "products, of a rank", "fixed, for each parameter"], rows) + "\n"
    rows = [[where, *(f"{1e6 * seconds:.0f} µs" for seconds in of.values())] for where, of in results["collectives"].items()]
    sizes = [f"{int(size) / (1 << 20):g} MiB" if int(size) >= 1 << 20 else f"{int(size) / 1024:g} KiB" for size in next(iter(results["collectives"].values()))]
    return text + table(["allreduce", *sizes], rows)


def predicted(results: dict) -> str:
    rows = []
    for row in results["predictions"]:
        host = f"{row['host']}: {row['ranks']} ranks x {row['cores_per_rank']} cores"
        shares = [f"{100 * share:.0f} %" for share in row["efficiency"].values()]
        rows.append([row["model"], host, f"{row['gigabit']} Gb/s", f"{row['one_host_seconds']:.2f} s", f"{row['sent_bytes'] / 1e6:.0f} MB", *shares])
    hosts = [f"{count} hosts" for count in results["predictions"][0]["efficiency"]]
    return table(["model", "host", "link", "step of one host", "sent by each of two", *hosts], rows)


def tables(results: dict) -> str:
    head = f"{results['cpu']}, {results['cores']} cores; {results['steps']} steps, median of {results['repeat']}; commit {results['commit']}."
    return "\n".join([
        "### Measured\n", head + "\n", measured(results), "### What the model is made of\n", parameters(results),
        "### A model, not a measurement\n", f"With the speed of {results['predicted_with']} and {results['tokens_per_sample']:.0f} tokens a sample:\n", predicted(results),
    ])  # fmt: skip


def write(results: dict) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{tables(results)}\n{END}{after}")
