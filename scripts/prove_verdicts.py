#!/usr/bin/env python3
"""Shows on a box of GPUs that verdicts can be trusted there: kernels planted 3% slower must come out SLOWER and caused by
the compiler's side in every comparison, and A against A (the placebo of each) must raise at most one alarm in all.

  scripts/prove_verdicts.py plant FOLDER --kernel NAME [--kernel NAME]...    where a toolkit is; needs no GPU
  scripts/prove_verdicts.py run FOLDER [--results DIR] [--comparisons 5] [--blocks 6]    on the box

`plant` compiles a ladder of bundles, each slower by more clock cycles a call, with scripts/planted_bundle.py. `run` times
the kernels as they are and planted, takes for each kernel the step of the ladder that comes nearest to 3% of its call,
and compares. ARB_PROGRAM names another arbench than build/release/arbench.
Exit codes: 0 proved, 1 usage, 2 wrong data, 3 not proved, 5 the environment cannot do it.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("ARB_PROGRAM", str(ROOT / "build" / "release" / "arbench"))
# Cycles a call. The next step is 1.2 times this one, so the nearest is at most a tenth off.
LADDER = [60, 72, 86, 104, 124, 149, 179, 215, 258, 310, 372, 446, 535, 642, 770, 925]
PLANTED_SHARE = 0.03
MOST_ALARMS = 1


def fail(code, sentence):
    print(f"prove_verdicts.py: {sentence}", file=sys.stderr)
    sys.exit(code)


def say(sentence):
    print(f"prove_verdicts.py: {sentence}", flush=True)


def arbench(*arguments, good=(0,)):
    """What the program printed; ends with its sentence and exit code where that is not among the good ones."""
    done = subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode not in good:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        fail(done.returncode if done.returncode in (1, 2) else 5, f"arbench {arguments[0]} failed: {last}")
    return done.stdout


def plant(options):
    for cycles in LADDER:
        done = subprocess.run(
            [sys.executable, ROOT / "scripts" / "planted_bundle.py", options.bundle, options.folder / str(cycles),
             "--cycles", str(cycles), "--architectures", options.architectures,
             *(f"--kernel={name}" for name in options.kernel)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            fail(1, done.stderr.strip().removeprefix("planted_bundle.py: "))
        say(done.stdout.strip())


def ladder_of(folder):
    """The bundles that `plant` made, by cycles: {cycles: folder of the bundle}, the same bundle's name in each."""
    steps = {int(path.parent.parent.name): path.parent for path in folder.glob("*/*/manifest.json")
             if path.parent.parent.name.isdigit()}
    if len(steps) < 2 or len({path.name for path in steps.values()}) != 1:
        fail(1, f"{folder} has no ladder of planted bundles; scripts/prove_verdicts.py plant {folder} makes one")
    return dict(sorted(steps.items()))


def read_manifest(bundle):
    return json.loads((bundle / "manifest.json").read_text())


def compared(options, bundle, planted, kernels, seed, results):
    """comparison.json of a comparison of bundle `bundle` with the one in folder `planted`; its folder goes to `results`."""
    printed = arbench("compare", "--a", f"toolkit={bundle}", "--b", f"bundle={planted}", "--attribute", "--contender",
                      ",".join(kernels), "-b", options.minbytes, "-e", options.maxbytes, "-f", "4", "--blocks",
                      options.blocks, "--seed", seed, "--json", "--results", results, good=(0, 3, 5))
    if not printed.strip():
        fail(5, "arbench compare could not be had; run it by hand to see why")
    return json.loads(printed)


def cycles_of_kernels(cells, planted_cycles, ladder, kernels):
    """{kernel: step of the ladder whose delay is nearest to 3% of its call}, from cells of which B has planted_cycles."""
    chosen = {}
    for kernel in kernels:
        own = [cell for cell in cells if cell["contender"] == kernel and "a_us" in cell and "b_us" in cell]
        if not own:
            fail(5, f"{kernel} was not timed, so nothing can be planted in it")
        us_a_cycle = statistics.mean(cell["b_us"] - cell["a_us"] for cell in own) / planted_cycles
        if us_a_cycle <= 0:
            fail(5, f"{planted_cycles} planted cycles do not show in {kernel}'s times, so nothing can be planted in it")
        wanted = PLANTED_SHARE * statistics.mean(cell["a_us"] for cell in own) / us_a_cycle
        chosen[kernel] = min(ladder, key=lambda cycles, wanted=wanted: abs(cycles - wanted))
    return chosen


def merged_bundle(ladder, chosen, to):
    """A bundle in folder `to` with each kernel from its own step of the ladder; its path."""
    some = next(iter(ladder.values()))
    manifest = read_manifest(some)
    target = to / some.name
    target.mkdir(parents=True)
    kernels = []
    for kernel, cycles in chosen.items():
        entry = next(entry for entry in read_manifest(ladder[cycles])["kernels"] if entry["kernel"] == kernel)
        for cubin in entry["cubins"]:
            shutil.copy(ladder[cycles] / cubin["file"], target)
        kernels.append(entry)
    (target / "manifest.json").write_text(json.dumps({**manifest, "kernels": kernels}))
    return target


def judged(comparison):
    """Of one comparison.json: (cells, those SLOWER by the compiler, placebo cells, false alarms among them)."""
    cells = comparison["cells"]
    found = [cell for cell in cells if cell.get("verdict") == "SLOWER" and cell["why"].startswith("compiler: ")]
    placebos = [cell["placebo"] for cell in cells if "placebo" in cell]
    alarms = [placebo for placebo in placebos if placebo.get("verdict") in ("FASTER", "SLOWER")]
    return len(cells), len(found), len(placebos), len(alarms)


def run(options):
    ladder = ladder_of(options.folder)
    bundle = next(iter(ladder.values())).name
    kernels = [entry["kernel"] for entry in read_manifest(next(iter(ladder.values())))["kernels"]]
    top = max(ladder)
    say(f"timing {', '.join(kernels)} as they are and with {top} cycles more a call")
    with tempfile.TemporaryDirectory() as scratch:
        timed = compared(options, bundle, ladder[top], kernels, 1, scratch)
        chosen = cycles_of_kernels(timed["cells"], top, ladder, kernels)
        for kernel, cycles in chosen.items():
            say(f"{kernel}: {cycles} cycles a call are planted")
        cells = found = placebos = alarms = failed = 0
        planted = merged_bundle(ladder, chosen, pathlib.Path(scratch) / "planted")
        for number in range(1, options.comparisons + 1):
            comparison = compared(options, bundle, planted, kernels, number, options.results)
            if comparison.get("failed"):
                failed += 1
                say(f"comparison {number}: no verdict: {comparison['failed']}")
                continue
            counts = judged(comparison)
            changes = [cell["change"] for cell in comparison["cells"] if "change" in cell]
            say(f"comparison {number}: {counts[1]} of {counts[0]} planted cells SLOWER by the compiler "
                f"({min(changes):+.1%} to {max(changes):+.1%}), {counts[3]} false alarms in {counts[2]} of A against A")
            cells, found = cells + counts[0], found + counts[1]
            placebos, alarms = placebos + counts[2], alarms + counts[3]
    proved = failed == 0 and cells > 0 and found == cells and alarms <= MOST_ALARMS
    say(f"{'proved' if proved else 'NOT proved'}: {found} of {cells} planted effects found, {alarms} false alarms in "
        f"{placebos} comparisons of A with itself" + (f", {failed} comparisons without a verdict" if failed else ""))
    sys.exit(0 if proved else 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, metavar="plant|run")
    make = verbs.add_parser("plant", help="compile the ladder of slower bundles")
    make.add_argument("folder", type=pathlib.Path)
    make.add_argument("--bundle", default="13.0-nvrtc", help="which bundle to imitate (default 13.0-nvrtc)")
    make.add_argument("--kernel", action="append", required=True, metavar="NAME", help="a file of kernels/; repeatable")
    make.add_argument("--architectures", default="90;120")
    make.set_defaults(do=plant)
    prove = verbs.add_parser("run", help="plant 3%% and compare, on GPUs")
    prove.add_argument("folder", type=pathlib.Path)
    prove.add_argument("--results", default="results", help="where the comparisons' folders go (default ./results)")
    prove.add_argument("--comparisons", type=int, default=5)
    prove.add_argument("--blocks", type=int, default=6)
    prove.add_argument("-b", "--minbytes", default="4K")
    prove.add_argument("-e", "--maxbytes", default="64K", help="sizes are 4 times apart (default 4K, 16K, 64K)")
    prove.set_defaults(do=run)
    try:
        options = parser.parse_args()
    except SystemExit as end:
        sys.exit(1 if end.code else 0)
    options.do(options)


if __name__ == "__main__":
    main()
