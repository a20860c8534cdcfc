#!/usr/bin/env python3
"""The history of nightly runs: appends a night, finds change points in it, and writes one page.

  history.py check   HISTORY                   a sentence where a line cannot be read
  history.py append  HISTORY RUN               one line of JSON more, or a sentence on why not
  history.py baseline HISTORY RUN              prints the folder to compare RUN with: the pinned night, or the middle one
                                               of the last seven good ones
  history.py mark    HISTORY RUN good|bad      what became of a night: bad is slower, wrong, or under failed gates
  history.py pin     HISTORY RUN               compare every later night of the same machine and plan with RUN
  history.py changes HISTORY RUN [--json]      change points of RUN's machine and plan, by Apache Otava
  history.py smaller RUN                       its times as github-action-benchmark's customSmallerIsBetter
  history.py summary HISTORY RUN COMPARISON.md CODE [NOTE]...   the night's page, in Markdown

HISTORY is a file of one JSON object a line:
  {"schema": "arbench night 1", "time", "run", "driver", "gpus": [..], "world", "plan", "good": true|false|null, "pinned",
   "cells": {"<name of the cell>": median of its launches' p50 in microseconds, ..}}
"run" is a path from the history's folder, so that both can be moved. Nights that share driver, GPUs, world and plan (what
was asked for) are one baseline; a change of any starts a new one, or goes on with an old one.
Nothing in the file is ever changed but "good" and "pinned", by a rename of a whole new file. A line that cannot be read
stops everything with its number. Exit status: 0, 1 usage, 5 a file or a run that cannot be used; `baseline` prints
nothing where there is none. Otava comes from the Python package index (scripts/nightly.sh puts it into .venv-history).
"""

import argparse
import csv
import datetime
import hashlib
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

SCHEMA = "arbench night 1"
FEWEST_NIGHTS = 10  # for change points: below that Otava's windows hold too little
RECENT_NIGHTS = 7  # of the good ones, whose middle one is the baseline: the last alone may have been a lucky one


class Problem(Exception):
    """One sentence: what is wrong and what would work."""


def read_history(path):
    """All nights, oldest first."""
    nights = []
    if not path.exists():
        return nights
    for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1):
        if not line:
            continue
        try:
            night = json.loads(line)
            if night["schema"] != SCHEMA:
                raise ValueError(f"its schema is {night['schema']}")
            for name in ("time", "run", "driver", "plan"):
                if not isinstance(night[name], str):
                    raise ValueError(f"{name} is no text")
            if not isinstance(night["gpus"], list) or not isinstance(night["cells"], dict):
                raise ValueError("gpus or cells are of another kind")
            if not all(isinstance(time, (int, float)) and time > 0 for time in night["cells"].values()):
                raise ValueError("a time is not positive")
        except (ValueError, KeyError, TypeError) as error:
            raise Problem(f"{path} line {number} is no night of ours ({error}); nothing was changed, remove that line to "
                          "go on") from None
        nights.append(night)
    return nights


def write_history(path, nights):
    """Replaces the file by one rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".history-", dir=path.parent)
    with os.fdopen(handle, "w") as file:
        for night in nights:
            file.write(json.dumps(night, sort_keys=True, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.chmod(name, 0o644)
    os.replace(name, path)


def started(run):
    """'2026-11-30T12:59:42+00:00' of a run, from its command.txt."""
    for line in (run / "command.txt").read_text(errors="replace").splitlines():
        if line.startswith("started: "):
            return line.removeprefix("started: ").strip().replace("Z", "+00:00")
    raise Problem(f"{run} does not say when it started, so it is no whole run")


def read_night(run):
    """What a results folder adds to the history."""
    if run.name.startswith(".") or run.name.endswith("-interrupted"):
        raise Problem(f"{run} was not finished, so it is no night")
    try:
        environment = json.loads((run / "environment.json").read_text())
        times, asked, worlds = {}, set(), set()
        with open(run / "rows.csv", newline="") as file:
            for row in csv.DictReader(file):
                if row["evidence"] != "measured":
                    continue
                variant = row["nccl"] or f"{row['toolkit']}-{row['compiler']}".strip("-")
                variant = variant or row["contender"].partition("_")[0]  # a peer's: its library
                name = (f"{row['contender']}/{variant}/{row['dtype']}/n{row['ranks']}/{row['bytes']}/{row['place']}/"
                        f"{row['mode']}/{row['cache']}")
                asked.add(name)
                worlds.add(row["world"])
                if row["p50_us"]:
                    times.setdefault(name, []).append(float(row["p50_us"]))
        time = started(run)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Problem(f"{run} is no whole run ({error})") from None
    if not times:
        raise Problem(f"{run} holds no measured time (emulated rows have none), so it is no night")
    cells = {name: statistics.median(values) for name, values in sorted(times.items())}
    # A cell that did not run tonight was asked for all the same.
    plan = hashlib.sha256("\n".join(sorted(asked)).encode()).hexdigest()[:16]
    return {"schema": SCHEMA, "time": time, "run": str(run), "driver": environment.get("driver", ""),
            "gpus": [gpu["uuid"] for gpu in environment.get("gpus", [])], "world": "/".join(sorted(worlds)), "plan": plan,
            "good": None, "pinned": False, "cells": cells}


def name_of(path, run):
    """What the history calls a run: its path from the history's folder."""
    return os.path.relpath(run.resolve(), path.resolve().parent)


def folder_of(path, night):
    """Where a night's run is."""
    return path.parent / night["run"]


def same_baseline(one, other):
    return all(one.get(key, other.get(key)) == other.get(key) for key in ("driver", "gpus", "world", "plan"))


def differences(before, now):
    """In words, why two nights are no baseline of each other."""
    words = []
    if before["driver"] != now["driver"]:
        words.append(f"the driver changed from {before['driver']} to {now['driver']}")
    if before["gpus"] != now["gpus"]:
        words.append("the GPUs changed")
    if before.get("world", now["world"]) != now["world"]:
        words.append(f"the world changed from {before['world']} to {now['world']}")
    if before["plan"] != now["plan"]:
        words.append("the plan's cells changed")
    return " and ".join(words)


def append(path, run):
    nights = read_history(path)
    night = read_night(run)
    night["run"] = name_of(path, run)
    if any(other["run"] == night["run"] for other in nights):
        raise Problem(f"{run} is in {path} already")
    if not nights:
        print("new baseline: this is the first night")
    elif not same_baseline(nights[-1], night):
        known = any(same_baseline(other, night) for other in nights)
        print(f"{'back to an earlier' if known else 'new'} baseline: {differences(nights[-1], night)}")
    write_history(path, nights + [night])


def baseline(path, run):
    now, name = read_night(run), name_of(path, run)
    earlier = [night for night in read_history(path) if night["run"] != name and same_baseline(night, now)]
    earlier.reverse()  # the newest first: older ones need not be read
    chosen = next(readable(path, [night for night in earlier if night["pinned"]]), None)
    if chosen is None:
        recent = list(itertools.islice(readable(path, [night for night in earlier if night["good"]]), RECENT_NIGHTS))
        chosen = middle(recent[::-1])
    if chosen is not None:
        print(folder_of(path, chosen))


def readable(path, nights):
    """Those whose folders can be read, one by one; of the others stderr tells."""
    for night in nights:
        try:
            read_night(folder_of(path, night))
        except Problem as problem:
            print(f"history.py: a night is left out as a baseline: {problem}", file=sys.stderr)
            continue
        yield night


def middle(nights):
    """The night whose cells are nearest to all nights' medians; None of none."""
    if not nights:
        return None
    common = set.intersection(*(set(night["cells"]) for night in nights))
    medians = {cell: statistics.median(night["cells"][cell] for night in nights) for cell in common}
    return min(nights, key=lambda night: sum(abs(night["cells"][cell] / medians[cell] - 1) for cell in common))


def mark(path, run, word):
    nights = read_history(path)
    night_of(path, nights, run)["good"] = word == "good"
    write_history(path, nights)


def night_of(path, nights, run):
    """The night of a run, which the history has once."""
    name = name_of(path, run)
    for night in nights:
        if night["run"] == name:
            return night
    raise Problem(f"{run} is not in {path}; append it first")


def pin(path, run):
    nights = read_history(path)
    pinned = night_of(path, nights, run)
    for night in nights:
        if same_baseline(night, pinned):
            night["pinned"] = night is pinned
    write_history(path, nights)


def otava():
    """Path of Otava's program beside this Python or on the path."""
    for folder in [str(pathlib.Path(sys.executable).parent)] + os.environ.get("PATH", "").split(os.pathsep):
        program = pathlib.Path(folder) / "otava"
        if program.is_file() and os.access(program, os.X_OK):
            return str(program)
    raise Problem("Apache Otava is not there; `python3 -m venv .venv-history && .venv-history/bin/pip install "
                  "apache-otava` brings it, and .venv-history/bin/python scripts/history.py finds it")


def otava_files(folder, nights):
    """Writes what Otava reads: a configuration and one table, a column a cell. Returns column -> name of the cell."""
    common = set.intersection(*(set(night["cells"]) for night in nights))
    names = {f"cell_{number}": name for number, name in enumerate(sorted(common))}
    with open(folder / "nights.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["time", "run", *names])
        for night in nights:
            writer.writerow([night["time"], pathlib.Path(night["run"]).name,
                             *(repr(night["cells"][name]) for name in names.values())])
    # JSON is YAML, and its quoting is known.
    metrics = {column: {"column": column, "direction": -1} for column in names}
    configuration = {"tests": {"nightly": {"type": "csv", "file": str(folder / "nights.csv"), "time_column": "time",
                                           "attributes": ["run"], "metrics": metrics,
                                           "csv_options": {"delimiter": ",", "quotechar": '"'}}}}
    (folder / "otava.yaml").write_text(json.dumps(configuration))
    return names


def find_changes(path, run):
    """Change points of the run's baseline: a list of {time, run, cell, before_us, after_us, change}."""
    now = read_night(run)
    nights = [night for night in read_history(path) if same_baseline(night, now)]
    if len(nights) < FEWEST_NIGHTS:
        raise Problem(f"{len(nights)} nights of this machine and plan are too few for change points; {FEWEST_NIGHTS} are "
                      "needed")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        columns = otava_files(folder, nights)
        command = [otava(), "analyze", "nightly", "--since", "1970-01-01", "--output", "json", "--config-file",
                   str(folder / "otava.yaml")]
        done = subprocess.run(command, capture_output=True, text=True, check=False,
                              env={**os.environ, "OTAVA_CONFIG": str(folder / "otava.yaml")})
    try:
        # Otava's log may stand before its document.
        document = json.loads(done.stdout[done.stdout.index("{"):])
    except ValueError:
        lines = (done.stderr + done.stdout).strip().splitlines() or ["it said nothing"]
        raise Problem(f"Otava could not analyse the history ({lines[-1]})") from None
    changes = []
    by_second = {int(datetime.datetime.fromisoformat(night["time"]).timestamp()): night for night in nights}
    for group in document.get("nightly", []):
        night = by_second.get(int(group["time"]))
        for change in group["changes"]:
            cell = columns[change["metric"]]
            changes.append({"time": night["time"] if night else str(group["time"]),
                            "run": pathlib.Path(night["run"]).name if night else "",
                            "cell": cell,
                            "before_us": float(change["mean_before"]),
                            "after_us": float(change["mean_after"]),
                            "change": float(change["mean_after"]) / float(change["mean_before"]) - 1})
    return changes


def changes_text(changes):
    if not changes:
        return "no change point\n"
    lines = [f"{change['time']}  {change['cell']}  {change['change']:+.1%}  ({change['run']})" for change in changes]
    return "\n".join(lines) + "\n"


def smaller(run):
    """Prints a list of {name, unit, value}."""
    print(json.dumps([{"name": name, "unit": "us", "value": time} for name, time in read_night(run)["cells"].items()],
                     indent=1, allow_nan=False))


def summary(path, run, comparison, code, notes):
    now = read_night(run)
    nights = [night for night in read_history(path) if same_baseline(night, now)]
    words = {0: "good", 1: "the command line was wrong", 2: "WRONG DATA or a hang", 3: "REGRESSION", 4: "inconclusive",
             5: "the environment could not do it"}
    lines = [f"# Allreduce, {now['time']}: {words.get(code, 'unknown')} (exit code {code})", "",
             f"Run `{run.name}`, driver {now['driver']}, {len(now['gpus'])} GPUs, {len(now['cells'])} cells, night "
             f"{len(nights)} of its baseline.", "", *(f"- {note}" for note in notes if note), ""]
    if comparison.is_file():
        lines.append(comparison.read_text())
    lines.append("## Change points\n")
    try:
        changes = find_changes(path, run)
        lines.append("```\n" + changes_text(changes) + "```" if changes else "None.")
    except Problem as problem:
        lines.append(f"Not looked for: {problem}.")
    print("\n".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name in ("check", "append", "baseline", "mark", "pin", "changes", "smaller", "summary"):
        verb = verbs.add_parser(name)
        if name != "smaller":
            verb.add_argument("history", type=pathlib.Path)
        if name != "check":
            verb.add_argument("run", type=pathlib.Path)
        if name == "mark":
            verb.add_argument("word", choices=["good", "bad"])
        if name == "changes":
            verb.add_argument("--json", action="store_true")
        if name == "summary":
            verb.add_argument("comparison", type=pathlib.Path)
            verb.add_argument("code", type=int)
            verb.add_argument("note", nargs="*")
    try:
        options = parser.parse_args()
    except SystemExit as end:
        return 1 if end.code else 0
    try:
        if options.verb == "check":
            read_history(options.history)
        elif options.verb == "append":
            append(options.history, options.run)
        elif options.verb == "baseline":
            baseline(options.history, options.run)
        elif options.verb == "mark":
            mark(options.history, options.run, options.word)
        elif options.verb == "pin":
            pin(options.history, options.run)
        elif options.verb == "changes":
            changes = find_changes(options.history, options.run)
            print(json.dumps(changes, indent=1, allow_nan=False) if options.json else changes_text(changes), end="")
        elif options.verb == "smaller":
            smaller(options.run)
        else:
            summary(options.history, options.run, options.comparison, options.code, options.note)
    except Problem as problem:
        print(f"history.py: {problem}", file=sys.stderr)
        return 5
    except OSError as error:
        print(f"history.py: {error}", file=sys.stderr)
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main())
