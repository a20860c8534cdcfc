#!/usr/bin/env python3
"""Makes a bundle whose kernels are slower by a known amount, to see whether a comparison finds it and names the compiler.

  scripts/planted_bundle.py 13.0-nvrtc FOLDER --cycles 100 [--cycles-a-kib 0] [--architectures "90;120"] [--kernel NAME]...

FOLDER/13.0-nvrtc is compiled from a copy of the kernels in which every block waits, once a call, for so many clock
cycles of the SM and so many more for each KiB of the message. What share of a call that is depends on machine and size:
measure one launch of each bundle and scale. Then

  arbench compare --a toolkit=13.0 --b bundle=FOLDER/13.0-nvrtc --attribute

should say SLOWER by that share, SASS differs, and nothing about NCCL's rows. Without --kernel all kernels are made.
Exits 1 with a sentence where the toolkit or the folder will not do.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Where every kernel passes once a call: it reads its generation.
ANCHOR = "ARB_DEVICE u32 current_generation(const KernelParams& params) {\n"
DELAY = """// A planted effect: this bundle is slower on purpose.
ARB_DEVICE long long planted_clock() {
  long long value;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(value));
  return value;
}
ARB_DEVICE void planted_delay(u64 count_elements) {
  const long long cycles = CYCLES + static_cast<long long>(count_elements) * CYCLES_A_KIB / 512;
  const long long start = planted_clock();
  while (planted_clock() - start < cycles) {
  }
}

"""


def fail(sentence):
    sys.exit(f"planted_bundle.py: {sentence}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", help="which bundle to imitate, such as 13.0-nvrtc")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--cycles", type=int, required=True, help="clock cycles a call")
    parser.add_argument("--cycles-a-kib", type=int, default=0, help="more of them for each KiB of a 16-bit message")
    parser.add_argument("--architectures", default="90;120")
    parser.add_argument("--kernel", action="append", default=[], metavar="NAME", help="only this file of kernels/")
    options = parser.parse_args()

    match = re.fullmatch(r"(\d+\.\d+)-(nvrtc|nvcc)", options.bundle)
    if not match:
        fail(f"'{options.bundle}' is no bundle; one is <toolkit>-<compiler>, such as 13.0-nvrtc")
    if options.cycles < 0 or options.cycles_a_kib < 0:
        fail("a kernel cannot be planted faster; --cycles and --cycles-a-kib are 0 or more")
    if (options.folder / options.bundle).exists():
        fail(f"{options.folder / options.bundle} is there already; name another folder")
    names = options.kernel or sorted(file.stem for file in (ROOT / "kernels").glob("*.cu"))
    for name in names:
        if not (ROOT / "kernels" / f"{name}.cu").is_file():
            fail(f"there is no kernels/{name}.cu")
    found = subprocess.run([sys.executable, ROOT / "scripts" / "toolkits.py", "find", match[1], "--with", match[2]],
                           capture_output=True, text=True, check=False)
    if found.returncode != 0:
        fail(found.stderr.strip().removeprefix("toolkits.py: "))

    with tempfile.TemporaryDirectory() as scratch:
        copy = pathlib.Path(scratch)
        for part in ("kernels", "include"):
            shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / "scripts").mkdir()
        for file in (ROOT / "scripts").glob("toolkits.*"):
            shutil.copy(file, copy / "scripts")
        protocol = copy / "kernels" / "machine" / "protocol.cuh"
        text = protocol.read_text()
        if text.count(ANCHOR) != 1:
            fail(f"{protocol.relative_to(copy)} has no current_generation() to plant the delay in")
        delay = DELAY.replace("CYCLES_A_KIB", str(options.cycles_a_kib)).replace("CYCLES", str(options.cycles))
        begin = text.rindex("\n\n", 0, text.index(ANCHOR)) + 2  # before its comment
        text = text[:begin] + delay + text[begin:]
        protocol.write_text(text.replace(ANCHOR, ANCHOR + "  planted_delay(params.count_elements);\n"))
        files = [copy / "kernels" / f"{name}.cu" for name in names]
        done = subprocess.run(
            [sys.executable, copy / "kernels" / "compile_bundle.py", "bundle", "--name", options.bundle,
             "--compiler", match[2], "--toolkit", found.stdout.strip(), "--architectures", options.architectures,
             "--output", options.folder.resolve() / options.bundle, "--work", copy / "work",
             *files], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            fail(f"the planted kernels do not compile: {done.stderr.strip() or done.stdout.strip()}")
    print(f"planted bundle in {options.folder / options.bundle}: {options.cycles} cycles a call"
          f"{f' and {options.cycles_a_kib} a KiB' if options.cycles_a_kib else ''}")


if __name__ == "__main__":
    main()
