"""The tables of docs/scaling.md, from the results of run.py."""

import math
import pathlib

from model import ENCODERS, LARGE_BYTES, SMALL_BYTES, Machine, allreduce_seconds, network_from

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "scaling.md"
# (hosts, ranks of each) of the allreduces, and the sizes that the model's numbers come from; at other sizes it predicts.
ALLREDUCES = {"2 ranks on one host": (1, 2), "2 hosts": (2, 1), "4 hosts": (4, 1)}
FITTED = {"2 ranks on one host": (SMALL_BYTES, LARGE_BYTES), "2 hosts": (SMALL_BYTES, LARGE_BYTES), "4 hosts": (SMALL_BYTES,)}
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


def left_out(results: dict) -> str:
    """Cases that run.py was to measure and did not, and those that this machine cannot show."""
    places = {(point["hosts"], point["ranks_per_host"]): place(point) for point in results["points"]}
    sentences = []
    for name in results["machines"]:
        had = {(point["hosts"], point["ranks_per_host"]) for point in results["points"] if point["model"] == name}
        for hosts, ranks in sorted(places.keys() - had):
            needed = hosts * ranks * ENCODERS[name].memory_bytes()
            sentences.append(f"{name}, {places[hosts, ranks]}, is left out: its ranks need {needed / 1e9:.0f} GB of memory, more than were free.")
    unmeasured = [f"of {name}" for name in ENCODERS if name not in results["machines"]]
    sentences.append(f"There are no steps {', '.join([*unmeasured, 'of more than 2 hosts'])} or of hosts with several ranks: this machine has {results['cores']} cores.")
    return " ".join(sentences)


def percent(share: float) -> str:
    return f"{100 * share:+.0f} %"


def spread_of(errors: list[float]) -> str:
    low, high = percent(min(errors)), percent(max(errors))
    return low if low == high else f"{low} to {high}"


def errors_of_steps(results: dict) -> str:
    groups: dict[str, list[float]] = {}
    for point in results["points"]:
        where = "on one host" if point["hosts"] == 1 else "over limited links" if point["mbit"] else "between two hosts without a limit"
        groups.setdefault(where, []).append(point["error"])
    text = "The model's error on these steps: " + ", ".join(f"{spread_of(errors)} {where}" for where, errors in groups.items()) + "."
    if max(groups.get("over limited links", [0])) < 0:
        text += " Over a limited link every step took longer than it says, which is not explained yet: read what it says of slow links as an upper bound."
    return text


def microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:.0f} µs"


def collectives_of(results: dict) -> dict[str, dict[int, float]]:
    return {where: {int(size): seconds for size, seconds in of.items()} for where, of in results["collectives"].items()}


def parameters(results: dict) -> str:
    rows = [
        [name, f"{machine['flops_per_second'] / 1e9:.0f} GFLOP/s", f"{machine['seconds_per_parameter'] * 1e9:.2f} ns"]
        for name, machine in results["machines"].items()
    ]
    return table(["model", "products, of a rank", "fixed, for each parameter"], rows)


def allreduces(results: dict) -> str:
    collectives = collectives_of(results)
    network, machine = network_from(collectives, math.inf), Machine(**results["machines"][results["predicted_with"]])
    rows = []
    for where, of in collectives.items():
        for size, seconds in of.items():
            said, _ = allreduce_seconds(size, *ALLREDUCES[where], machine, network)
            error = "the model's numbers come from it" if size in FITTED[where] else percent(said / seconds - 1)
            rows.append([where, f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB", microseconds(seconds), microseconds(said), error])
    text = table(["allreduce", "size", "measured", "by the model", "its error"], rows)
    return text + (
        f"\n4 hosts of one rank share {results['cores']} cores here, which the model knows nothing of. How much of the difference is that, and how much would be there on real "
        "hosts, is not known.\n"
    )


def unchecked(results: dict) -> str:
    rate = 8e-9 / network_from(collectives_of(results), math.inf).byte_seconds
    return (
        "The column of 2 hosts has measured steps behind it, of one rank each; those of 4 hosts and more are checked by nothing: see the allreduces of 4 hosts above. Sending and receiving costs a rank "
        f"so much of its processor that it moves {rate:.1f} Gb/s at most, and two of a host {2 * rate:.0f} Gb/s: that is why a link of 100 Gb/s says the same as one of 25.\n"
    )


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
        "### Measured\n", head + "\n", measured(results), left_out(results) + "\n", errors_of_steps(results) + "\n",
        "### What the model is made of\n", parameters(results), allreduces(results), "### A model, not a measurement\n",
        f"With the speed of {results['predicted_with']} and {results['tokens_per_sample']:.0f} tokens a sample:\n", predicted(results), unchecked(results),
    ])  # fmt: skip


def write(results: dict) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{tables(results)}\n{END}{after}")
