#!/usr/bin/env python3
"""What other programs make of our files, and what the nightly scripts do: run by CTest.

  scripts_test.py REPOSITORY SAMPLE_ARBENCH CACHE

Strict JSON, Google Benchmark's compare.py (the distribution's, fetched into CACHE, else its arithmetic by hand), Apache
Otava (in a virtual environment in CACHE) and whole nights with a stand-in for arbench. What cannot be fetched is skipped
with a sentence.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

REPOSITORY, SAMPLE, CACHE = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
sys.path.insert(0, str(REPOSITORY / "scripts"))
sys.dont_write_bytecode = True
import history  # noqa: E402


def sample(*arguments, **environment):
    return subprocess.run([SAMPLE, *map(str, arguments)], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})


def refuse(name):
    raise ValueError(f"{name} is no JSON")


def strict(text):
    return json.loads(text, parse_constant=refuse)


def only_folder(parent):
    folders = [path for path in parent.iterdir() if not path.name.startswith(".")]
    assert len(folders) == 1, folders
    return folders[0]


def python_with_otava():
    """A Python whose environment has Otava, or why there is none."""
    python = CACHE / "venv" / "bin" / "python"
    if python.exists() and subprocess.run([python, "-c", "import otava"], capture_output=True, check=False).returncode == 0:
        return python, ""
    CACHE.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(CACHE / "venv", ignore_errors=True)
    for command in ([sys.executable, "-m", "venv", str(CACHE / "venv")],
                    [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "apache-otava"]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            words = (done.stderr + done.stdout).strip().splitlines() or ["no reason given"]
            return None, f"Apache Otava cannot be installed here ({words[-1]})"
    return python, ""


def compare_py():
    """Google Benchmark's own compare.py, or None."""
    for folder in (pathlib.Path("/usr/share/benchmark"), CACHE / "tools" / "usr" / "share" / "benchmark"):
        if (folder / "compare.py").is_file():
            return folder / "compare.py"
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        return None
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["apt-get", "download", "libbenchmark-tools"], cwd=scratch, capture_output=True, check=False)
        for package in pathlib.Path(scratch).glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, CACHE / "tools"], capture_output=True, check=False)
    found = CACHE / "tools" / "usr" / "share" / "benchmark" / "compare.py"
    return found if found.is_file() else None


class Files(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.parent = pathlib.Path(cls.scratch.name)
        done = sample("arms", cls.parent / "results", "1.05")
        assert done.returncode == 3, done.stderr
        cls.folder = only_folder(cls.parent / "results")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_every_document_is_strict_json(self):
        documents = list(self.folder.glob("*.json"))
        self.assertGreaterEqual(len(documents), 7)
        for document in documents:
            strict(document.read_text())
        for line in (self.folder / "blocks.jsonl").read_text().splitlines():
            strict(line)

    def test_smaller_is_better(self):
        entries = strict((self.folder / "smaller-is-better.json").read_text())
        self.assertTrue(entries)
        for entry in entries:
            self.assertEqual(set(entry), {"name", "unit", "value", "extra"})
            self.assertIsInstance(entry["value"], float)
        self.assertEqual(len({entry["name"] for entry in entries}), len(entries))

    def test_google_benchmarks_of_the_arms_join(self):
        arms = [strict((self.folder / f"benchmark-{arm}.json").read_text()) for arm in "ab"]
        for arm in arms:
            self.assertEqual(arm["context"]["json_schema_version"], 1)
            self.assertIn("caches", arm["context"])
        names = [[row["name"] for row in arm["benchmarks"]] for arm in arms]
        self.assertEqual(names[0], names[1])
        means = [{}, {}]
        for arm, into in zip(arms, means):
            for row in arm["benchmarks"]:
                into.setdefault(row["name"], []).append(row["real_time"])
        for name, times in means[0].items():
            self.assertEqual(len(times), 12)
            self.assertAlmostEqual(sum(means[1][name]) / sum(times), 1.05, delta=0.01)

    def test_compare_py_reads_them_unchanged(self):
        program = compare_py()
        if program is None:
            self.skipTest("Google Benchmark's compare.py is not here and cannot be fetched")
        python, why = python_with_otava()  # brings the numpy and scipy that compare.py needs
        if python is None:
            self.skipTest(why)
        done = subprocess.run([python, program, "--no-color", "benchmarks", self.folder / "benchmark-a.json",
                               self.folder / "benchmark-b.json"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [line for line in done.stdout.splitlines() if "/pipelined/warm_pvalue" in line.replace(" ", "")]
        self.assertTrue(lines, done.stdout)
        self.assertIn("U Test, Repetitions: 12 vs 12", done.stdout)
        self.assertIn("+0.05", done.stdout)


class PlantedBundles(unittest.TestCase):
    def plant(self, folder, *arguments):
        return subprocess.run([sys.executable, REPOSITORY / "scripts" / "planted_bundle.py", "13.0-nvrtc", folder,
                               "--architectures", "90", *arguments], capture_output=True, text=True, check=False)

    def test_every_function_gets_the_delay(self):
        if subprocess.run([sys.executable, REPOSITORY / "scripts" / "toolkits.py", "find", "13.0", "--with", "nvrtc"],
                          capture_output=True, check=False).returncode != 0:
            self.skipTest("toolkit 13.0 is not here, so nothing can be compiled")
        kernel = min((REPOSITORY / "kernels").glob("*.cu"), key=lambda file: file.stat().st_size).stem
        with tempfile.TemporaryDirectory() as scratch:
            hashes = []
            for cycles in ("100", "200"):
                folder = pathlib.Path(scratch) / cycles
                done = self.plant(folder, "--cycles", cycles, "--kernel", kernel)
                self.assertEqual(done.returncode, 0, done.stderr)
                manifest = strict((folder / "13.0-nvrtc" / "manifest.json").read_text())
                hashes.append({function["name"]: function["sass_sha256"] for part in manifest["kernels"]
                               for cubin in part["cubins"] for function in cubin["functions"]})
            self.assertEqual(hashes[0].keys(), hashes[1].keys())
            self.assertTrue(hashes[0])
            for name, value in hashes[0].items():
                self.assertNotEqual(value, hashes[1][name], name)
            again = self.plant(pathlib.Path(scratch) / "100", "--cycles", "1")
            self.assertEqual(again.returncode, 1)
            self.assertIn("is there already", again.stderr)

    def test_bad_input_is_a_sentence(self):
        with tempfile.TemporaryDirectory() as scratch:
            for arguments, words in ((("--cycles", "-1"), "cannot be planted faster"),
                                     (("--cycles", "1", "--kernel", "nothing_such"), "there is no kernels/nothing_such.cu")):
                done = self.plant(pathlib.Path(scratch) / "planted", *arguments)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(words, done.stderr)


class WithStandIn(unittest.TestCase):
    """Has a folder, and in it a program in Python that stands for arbench: TEXT."""

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        self.program = self.folder / "arbench"
        self.program.write_text(self.TEXT.format(python=sys.executable))
        self.program.chmod(0o755)

    def tearDown(self):
        self.scratch.cleanup()


# Stands for arbench in tests of prove_verdicts.py: of a call of 5 us and 0.5 ns a planted cycle it "compares" what the
# planted manifest says was planted; A with itself differs in so many cells as ARB_TEST_ALARMS says.
COMPARES = """#!{python}
import json, os, pathlib, sys
planted = pathlib.Path(sys.argv[sys.argv.index("--b") + 1].removeprefix("bundle="))
cells = []
for entry in json.loads((planted / "manifest.json").read_text())["kernels"]:
    assert (planted / entry["cubins"][0]["file"]).read_text() == str(entry["cycles"])
    change = entry["cycles"] * 0.0005 / 5
    alarm = len(cells) < int(os.environ.get("ARB_TEST_ALARMS", "0"))
    cells.append({{"contender": entry["kernel"], "a_us": 5, "b_us": 5 * (1 + change), "change": change,
                  "verdict": "SLOWER" if change >= 0.02 else "EQUIVALENT", "why": "compiler: SASS differs",
                  "placebo": {{"verdict": "SLOWER" if alarm else "EQUIVALENT"}}}})
print(json.dumps({{"cells": cells, **({{"failed": "hot"}} if "ARB_TEST_FAILED" in os.environ else {{}})}}))
sys.exit(5 if "ARB_TEST_FAILED" in os.environ else 3)
"""


class Proofs(WithStandIn):
    TEXT = COMPARES

    def ladder(self, steps):
        for cycles in steps:
            bundle = self.folder / "ladder" / str(cycles) / "13.0-nvrtc"
            bundle.mkdir(parents=True)
            kernels = [{"kernel": name, "cycles": cycles, "cubins": [{"file": f"{name}.cubin"}]} for name in "xyz"]
            (bundle / "manifest.json").write_text(json.dumps({"name": "13.0-nvrtc", "kernels": kernels}))
            for name in "xyz":
                (bundle / f"{name}.cubin").write_text(str(cycles))

    def prove(self, *arguments, **environment):
        return subprocess.run([sys.executable, REPOSITORY / "scripts" / "prove_verdicts.py", "run",
                               self.folder / "ladder", *arguments], capture_output=True, text=True, check=False,
                              env={**os.environ, "ARB_PROGRAM": str(self.program), **environment})

    def test_the_nearest_step_is_planted_and_found(self):
        self.ladder((100, 290, 700))
        done = self.prove()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("y: 290 cycles a call are planted", done.stdout)
        self.assertIn("comparison 5: 3 of 3 planted cells SLOWER by the compiler (+2.9% to +2.9%)", done.stdout)
        self.assertIn("proved: 15 of 15 planted effects found, 0 false alarms in 15", done.stdout)

    def test_what_is_not_proved_is_said(self):
        self.ladder((100, 150))  # 1.5% at most, which matters to nobody
        missed = self.prove()
        self.assertEqual(missed.returncode, 3, missed.stdout + missed.stderr)
        self.assertIn("NOT proved: 0 of 15", missed.stdout)
        shutil.rmtree(self.folder / "ladder")
        self.ladder((290, 700))
        alarmed = self.prove("--comparisons", "2", ARB_TEST_ALARMS="1")
        self.assertEqual(alarmed.returncode, 3, alarmed.stdout)
        self.assertIn("2 false alarms in 6", alarmed.stdout)
        failed = self.prove("--comparisons", "1", ARB_TEST_FAILED="1")
        self.assertEqual(failed.returncode, 3, failed.stdout)
        self.assertIn("no verdict: hot", failed.stdout)

    def test_bad_input_is_a_sentence(self):
        done = self.prove()
        self.assertEqual(done.returncode, 1)
        self.assertIn("has no ladder of planted bundles", done.stderr)


# Stands for arbench in tests of box-report.sh: has the verbs that ARB_TEST_VERBS names, as many GPUs as ARB_TEST_GPUS says,
# writes down how it was called, and ends a verb with the exit code that ARB_TEST_CODES gives it.
REPORTS = """#!{python}
import json, os, pathlib, sys
verb, codes = sys.argv[1], json.loads(os.environ.get("ARB_TEST_CODES", "{{}}"))
if verb == "--help":
    print("\\n".join("  " + name + "     what it does" for name in os.environ["ARB_TEST_VERBS"].split()))
    sys.exit(0)
with open(os.environ["ARB_TEST_CALLS"], "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
if verb == "list":
    print(json.dumps({{"gpus": [{{}}] * int(os.environ["ARB_TEST_GPUS"]),
                       "bundles": [{{"name": name}} for name in ("12.8-nvrtc", "13.0-nvcc", "13.0-nvrtc")]}}))
elif "-o" in sys.argv:
    pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).write_text("a tuning of " + os.environ["HOME"] + "/somewhere")
else:
    print(verb, "was here")
print("arbench:", verb, "says why", file=sys.stderr)
sys.exit(codes.get(verb, 0))
"""


class BoxReports(WithStandIn):
    TEXT = REPORTS
    VERBS = "list probe limits run tune compare verify"

    def report(self, gpus, verbs=VERBS, codes=None, to="report"):
        calls = self.folder / "calls"
        calls.unlink(missing_ok=True)
        done = subprocess.run(
            [REPOSITORY / "scripts" / "box-report.sh", self.folder / to], capture_output=True, text=True, check=False,
            env={**os.environ, "ARB_PROGRAM": str(self.program), "ARB_TEST_GPUS": str(gpus), "ARB_TEST_VERBS": verbs,
                 "ARB_TEST_CALLS": str(calls), "ARB_TEST_CODES": json.dumps(codes or {}), "HOME": "/home/ada"})
        return done, calls.read_text().splitlines() if calls.exists() else []

    def test_gpus_get_everything_once_and_the_tuning_is_used(self):
        done, calls = self.report(2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([call.split()[0] for call in calls],
                         ["list", "probe", "limits", "run", "tune", "run", "compare", "compare", "verify"])
        self.assertIn("--world processes", calls[5])
        self.assertIn("--tuning", calls[5])
        self.assertIn("--a toolkit=12.8-nvrtc --b toolkit=13.0-nvrtc --attribute", calls[6])
        summary = (self.folder / "report" / "summary.md").read_text()
        self.assertIn("data checks: exit code 0", summary)
        # The owner's home is in none of the files.
        self.assertEqual((self.folder / "report" / "tuning.json").read_text(), "a tuning of [left out]/somewhere")
        again, calls = self.report(2)
        self.assertEqual((again.returncode, calls), (1, []))

    def test_the_worst_part_is_the_exit_code_and_the_others_go_on(self):
        for codes, worst in (({"compare": 3}, 3), ({"compare": 3, "verify": 2}, 2), ({"limits": 5, "compare": 3}, 3),
                             ({"limits": 5}, 5), ({"tune": 2, "compare": 3}, 2), ({"run": 1}, 5)):
            done, calls = self.report(4, codes=codes, to="-".join(codes) + str(worst))
            self.assertEqual(done.returncode, worst, codes)
            self.assertEqual(calls[-1].split()[0], "verify", codes)
            for verb, code in codes.items():
                self.assertIn(f"exit code {code} after", done.stdout + self.summary("-".join(codes) + str(worst)))
                self.assertIn(f"({verb} says why)", self.summary("-".join(codes) + str(worst)))

    def summary(self, to):
        return (self.folder / to / "summary.md").read_text()

    def test_an_older_arbench_and_a_box_without_gpus_do_what_they_can(self):
        done, calls = self.report(2, verbs="list run compare")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("skipped, because this arbench has no verb `tune`", self.summary("report"))
        self.assertNotIn("--tuning", calls[2])
        done, calls = self.report(0, to="emulated")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("run --emulate", calls[2])
        self.assertIn("emulated rows have no time", self.summary("emulated"))


class Nights(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.home = pathlib.Path(self.scratch.name) / "nightly"

    def tearDown(self):
        self.scratch.cleanup()

    def night(self, *arguments, **environment):
        python, _ = python_with_otava()
        path = f"{python.parent}:{os.environ['PATH']}" if python else os.environ["PATH"]
        return subprocess.run([REPOSITORY / "scripts" / "nightly.sh", "--home", self.home, "--launches", "5", *arguments],
                              capture_output=True, text=True, check=False,
                              env={**os.environ, "ARB_PROGRAM": SAMPLE, "PATH": path,
                                   "ARB_NIGHTLY_PYTHON": str(python or sys.executable), **environment})

    def test_nights_compare_and_return_their_exit_code(self):
        first = self.night()
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("new baseline: this is the first night", first.stdout)
        second = self.night()
        self.assertEqual(second.returncode, 0, second.stdout + second.stderr)
        self.assertIn("comparing with", second.stdout)
        slow = self.night(ARB_SAMPLE_FACTOR="1.08")
        self.assertEqual(slow.returncode, 3, slow.stdout + slow.stderr)
        page = (self.home / "pages" / "latest.md").read_text()
        self.assertIn("REGRESSION (exit code 3)", page)
        self.assertIn("SLOWER", page)
        # The bad night is no baseline: the next slow one is a regression still.
        self.assertEqual(self.night(ARB_SAMPLE_FACTOR="1.08").returncode, 3)
        # Unless it is what should be from now on.
        self.assertEqual(self.night("--pin", ARB_SAMPLE_FACTOR="1.08").returncode, 3)
        self.assertEqual(self.night(ARB_SAMPLE_FACTOR="1.08").returncode, 0)
        nights = history.read_history(self.home / "history.jsonl")
        self.assertEqual([night["good"] for night in nights], [True, True, False, False, False, True])
        strict((self.home / "smaller-is-better.json").read_text())

    def test_a_new_driver_is_a_new_baseline(self):
        self.night()
        other = self.night(ARB_SAMPLE_DRIVER="590.10", ARB_SAMPLE_FACTOR="1.5")
        self.assertEqual(other.returncode, 0, other.stderr)
        self.assertIn("new baseline: the driver changed from 580.82.07 to 590.10", other.stdout)
        self.assertIn("no earlier good night", other.stdout)
        page = (self.home / "pages" / "latest.md").read_text()
        self.assertIn("- new baseline: the driver changed from 580.82.07 to 590.10", page)
        self.assertIn("- no comparison: there is no earlier good night of this baseline", page)
        # The first driver's nights count again once it is back.
        back = self.night()
        self.assertIn("back to an earlier baseline: the driver changed from 590.10 to 580.82.07", back.stdout)
        self.assertIn("comparing with", back.stdout)

    def wrapped(self, lines, code):
        """An arbench whose runs say more on stderr and end with another exit code."""
        program = pathlib.Path(self.scratch.name) / "wrapped"
        said = "\n".join(f"echo 'arbench: {line}' >&2" for line in lines)
        program.write_text(f'#!/bin/bash\n"{SAMPLE}" "$@" || exit $?\n[ "$1" = run ] || exit 0\n{said}\nexit {code}\n')
        program.chmod(0o755)
        return str(program)

    def page(self):
        return (self.home / "pages" / "latest.md").read_text()

    def test_pages_say_why_there_is_no_comparison(self):
        self.night()
        wrong = self.night(ARB_PROGRAM=self.wrapped(["x/bf16 is WRONG: rank 1 waited for rank 0 in phase reduce"], 2))
        self.assertEqual(wrong.returncode, 2, wrong.stderr)
        self.assertIn("- x/bf16 is WRONG: rank 1 waited for rank 0 in phase reduce", self.page())
        self.assertIn("- no comparison: data was wrong", self.page())
        # One cell that cannot run does not cost the others their comparison.
        partly = self.night(ARB_PROGRAM=self.wrapped(["x/bf16 did not run: no room"], 5))
        self.assertEqual(partly.returncode, 5, partly.stderr)
        self.assertIn("- x/bf16 did not run: no room", self.page())
        self.assertIn("EQUIVALENT", self.page())
        slow = self.night(ARB_PROGRAM=self.wrapped(["x/bf16 did not run: no room"], 5), ARB_SAMPLE_FACTOR="1.08")
        self.assertEqual(slow.returncode, 3, slow.stderr)
        nights = history.read_history(self.home / "history.jsonl")
        self.assertEqual([night["good"] for night in nights], [True, False, True, False])

    def test_a_night_that_cannot_be_had_leaves_no_old_page_and_no_old_times(self):
        self.night()
        self.assertTrue((self.home / "smaller-is-better.json").is_file(), "the first night has times, too")
        missing = self.night(ARB_PROGRAM="/nowhere/arbench")
        self.assertEqual(missing.returncode, 5)
        self.assertIn("there is no /nowhere/arbench", self.page())
        self.assertFalse((self.home / "smaller-is-better.json").exists())
        few = self.night("--launches", "2")
        self.assertEqual(few.returncode, 1)
        self.assertIn("3 launches or more", few.stderr)

    def test_a_lost_baseline_is_left_out_and_a_moved_home_goes_on(self):
        self.night()
        self.night()
        for run in sorted((self.home / "runs").iterdir()):
            shutil.rmtree(run)
        time.sleep(1.1)  # folders are named by the second
        lost = self.night()
        self.assertEqual(lost.returncode, 0, lost.stderr)
        self.assertIn("a night is left out as a baseline", lost.stderr)
        self.assertIn("- no comparison: there is no earlier good night of this baseline that can be read", self.page())
        moved = self.home.parent / "moved"
        self.home.rename(moved)
        self.home = moved
        again = self.night()
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertIn(f"comparing with {moved}/runs/", again.stdout)

    def test_another_world_is_another_baseline(self):
        self.night()
        run = only_folder(self.home / "runs")
        night = history.read_night(run)
        rows = (run / "rows.csv").read_text()
        self.assertIn(",threads,", rows)
        (run / "rows.csv").write_text(rows.replace(",threads,", ",processes,"))
        other = history.read_night(run)
        self.assertFalse(history.same_baseline(night, other))
        self.assertEqual(history.differences(night, other), "the world changed from threads to processes")

    def test_the_baseline_is_no_lucky_night(self):
        nights = [{"run": str(number), "cells": {"x": time, "y": 2 * time}}
                  for number, time in enumerate((5.0, 5.1, 4.9, 5.05, 4.2))]
        self.assertEqual(history.middle(nights)["run"], "0")
        self.assertIsNone(history.middle([]))

    def test_a_bad_line_stops_it_before_anything_runs(self):
        self.night()
        path = self.home / "history.jsonl"
        with open(path, "a") as file:
            file.write('{"schema": "arbench night 1", "ti\n')
        before, runs = path.read_bytes(), len(list((self.home / "runs").iterdir()))
        stopped = self.night()
        self.assertEqual(stopped.returncode, 5)
        self.assertIn("line 2 is no night of ours", stopped.stderr)
        self.assertEqual(path.read_bytes(), before)
        self.assertEqual(len(list((self.home / "runs").iterdir())), runs)

    def test_otava_finds_a_step(self):
        python, why = python_with_otava()
        if python is None:
            self.skipTest(why)
        done = sample("run", "--results", self.home / "runs")
        self.assertEqual(done.returncode, 0, done.stderr)
        run = only_folder(self.home / "runs")
        night = history.read_night(run)
        nights = []
        for number in range(24):
            factor = (1 if number < 15 else 1.06) * (1 + 0.002 * ((number * 7) % 5 - 2))
            nights.append({**night, "time": f"2026-10-{number + 1:02d}T02:00:00+00:00", "run": f"night-{number}",
                           "good": True, "cells": {name: us * factor for name, us in night["cells"].items()}})
        history.write_history(self.home / "history.jsonl", nights)
        found = subprocess.run([python, REPOSITORY / "scripts" / "history.py", "changes", self.home / "history.jsonl", run,
                                "--json"], capture_output=True, text=True, check=False)
        self.assertEqual(found.returncode, 0, found.stderr)
        changes = strict(found.stdout)
        self.assertEqual({change["cell"] for change in changes}, set(night["cells"]))
        for change in changes:
            self.assertEqual(change["run"], "night-15")
            self.assertAlmostEqual(change["change"], 0.06, delta=0.005)

    def test_no_measured_time_is_no_night(self):
        emulated = self.home / "runs" / "x"
        emulated.mkdir(parents=True)
        (emulated / "command.txt").write_text("arbench results 1\nstarted: 2026-11-30T12:59:42Z\n")
        (emulated / "environment.json").write_text('{"gpus": []}')
        (emulated / "rows.csv").write_text("evidence,contender,p50_us\nemulated,x,\n")
        with self.assertRaisesRegex(history.Problem, "no measured time"):
            history.append(self.home / "history.jsonl", emulated)
        with self.assertRaisesRegex(history.Problem, "no whole run"):
            history.append(self.home / "history.jsonl", self.home / "nowhere")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
