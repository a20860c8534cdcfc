#!/usr/bin/env python3
"""Draws a run: time of an allreduce against message size, one line a contender, and the machine's floor.

  plot.py RESULTS_FOLDER PICTURE.png [--mode pipelined] [--dtype bf16] [--toolkit 13.0-nvrtc]

Reads rows.csv (docs: measurement in README.md) and takes measured, out-of-place, warm rows; several launches give their
median. Needs pandas and matplotlib. Exits 1 with one sentence when there is nothing to draw.
"""

import argparse
import pathlib
import sys


def sizes_text(size_bytes):
    """1024 -> 1K, 1048576 -> 1M."""
    for unit, letter in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size_bytes >= unit and size_bytes % unit == 0:
            return f"{size_bytes // unit}{letter}"
    return str(size_bytes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("picture", type=pathlib.Path)
    parser.add_argument("--mode", default="pipelined", choices=["pipelined", "isolated"])
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--toolkit", default="13.0-nvrtc", help="of the kernels of ours; other rows have none")
    options = parser.parse_args()

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import pandas

    rows = pandas.read_csv(options.folder / "rows.csv", dtype={"toolkit": str})
    toolkit, _, compiler = options.toolkit.partition("-")
    rows = rows[(rows.evidence == "measured") & (rows["mode"] == options.mode) & (rows.dtype == options.dtype)
                & (rows.place == "out") & (rows.cache == "warm") & (rows.correct == "yes")]
    rows = rows[rows.toolkit.isna() | ((rows.toolkit == toolkit) & (rows.compiler == compiler))]
    if rows.empty:
        sys.exit(f"plot.py: {options.folder} has no measured {options.mode} rows of {options.dtype} and {options.toolkit}")

    figure, (time_axis, ratio_axis) = plt.subplots(2, 1, figsize=(10, 9), sharex=True, height_ratios=[3, 2])
    styles = {"nccl": dict(color="black", linewidth=2.5, linestyle="--"), "auto": dict(color="crimson", linewidth=2.5)}
    # Other people's work is dashed or dotted.
    dashes = {"nccl": "--", "torch": ":"}
    for number, contender in enumerate(dict.fromkeys(rows.contender)):
        line = rows[rows.contender == contender].groupby("bytes")[["p50_us", "floor_us"]].median()
        style = styles.get(contender, dict(linewidth=1.3, color=plt.get_cmap("tab20")(number % 20),
                                           linestyle=dashes.get(contender.partition("_")[0], "-")))
        time_axis.loglog(line.index, line.p50_us, marker="o", markersize=3, label=contender, **style)
        ratio_axis.semilogx(line.index, line.p50_us / line.floor_us, marker="o", markersize=3, **style)
    floor = rows.groupby("bytes").floor_us.median()
    time_axis.loglog(floor.index, floor, color="grey", linestyle="-.", label="floor of this machine")
    ratio_axis.axhline(1, color="grey", linestyle="-.")
    ratio_axis.set_ylim(0.9, 6)
    time_axis.set_ylabel("microseconds a call (p50)")
    ratio_axis.set_ylabel("times the floor")
    ratio_axis.set_xlabel("message size")
    ticks = sorted(set(rows.bytes))[::2]
    ratio_axis.set_xticks(ticks, [sizes_text(tick) for tick in ticks])
    ratio_axis.minorticks_off()
    time_axis.legend(fontsize=8, ncols=2)
    for axis in (time_axis, ratio_axis):
        axis.grid(alpha=0.3)
    ranks, gpus = rows.ranks.iloc[0], rows.gpus.iloc[0]
    time_axis.set_title(f"allreduce, {options.dtype}, sum, {ranks} ranks on {gpus:.0f} GPUs, {options.mode}, "
                        f"kernels by {options.toolkit}; measured")
    figure.tight_layout()
    figure.savefig(options.picture, dpi=110)


if __name__ == "__main__":
    main()
