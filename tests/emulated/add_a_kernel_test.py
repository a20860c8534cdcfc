#!/usr/bin/env python3
"""Follows docs/add-a-kernel.md: adds its kernel and its row to a copy of the sources, builds, and runs the gate on it.

  add_a_kernel_test.py SOURCE_FOLDER WORK_FOLDER

Exits 0 when the page leads to a kernel that passes and whose planted bugs are caught; 1 with a sentence when not.
"""

import pathlib
import re
import shutil
import subprocess
import sys


def fail(sentence):
    sys.exit(f"add_a_kernel_test.py: {sentence}")


def run(*command, cwd):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout[-4000:], done.stderr[-4000:], sep="\n")
        fail(f"{' '.join(map(str, command[:4]))} ... failed")
    return done.stdout


def main():
    source, work = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    copy = work / "sources"
    for folder in ("include", "kernels", "src", "tests", "bench", "scripts", "cmake"):
        shutil.rmtree(copy / folder, ignore_errors=True)
        shutil.copytree(source / folder, copy / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source / "CMakeLists.txt", copy)

    blocks = re.findall(r"```cpp\n(.*?)```", (source / "docs" / "add-a-kernel.md").read_text(), re.S)
    if len(blocks) != 3:
        fail(f"the page has {len(blocks)} blocks of C++ where three are expected: the file, the row, its function")
    file_block, row_block, function_block = blocks
    path = re.match(r"// (kernels/(\w+)\.cu)\n", file_block)
    if not path:
        fail("the first block does not begin with the name of its file")
    (copy / path[1]).write_text(file_block.split("\n", 1)[1])
    catalog = copy / "src" / "catalog.cpp"
    text = catalog.read_text()
    row = row_block.split("\n", 1)[1]
    function = function_block.split("\n", 1)[1]
    before_nccl, before_rows = text.find('    row("nccl"'), text.find("// What most rows have")
    if before_nccl < 0 or before_rows < 0:
        fail("src/catalog.cpp has no row of NCCL or no usual row where the page says")
    catalog.write_text(text[:before_rows] + function + "\n" + text[before_rows:before_nccl] + row + text[before_nccl:])

    build = work / "build"
    # A debug build optimises the emulator too, and no more than it needs.
    run("cmake", "-S", copy, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug", "-DCMAKE_CXX_FLAGS_DEBUG=",
        "-DCMAKE_UNITY_BUILD=ON", "-DARB_BUNDLES=OFF", cwd=work)
    run("cmake", "--build", build, "--target", "arb_test_gate", cwd=work)
    said = run(build / "arb_test_gate", f"--gtest_filter=*{path[2]}*:PlantedBugs.*", cwd=build)
    if path[2] not in said or " 0 tests" in said.splitlines()[0]:
        print(said)
        fail(f"the gate has no test for {path[2]}")
    print(said[-1500:])


if __name__ == "__main__":
    main()
