#!/usr/bin/env python3
"""Compiles kernels/*.cu with one compiler of one toolkit into a bundle: native SASS only, plus manifest.json.

  compile_bundle.py bundle --name 12.8-nvrtc --toolkit DIR --output bundles/12.8-nvrtc FILE.cu...
  compile_bundle.py compile ... FILE.cu...   only fills the work folder (what CMake runs once a file)
  compile_bundle.py finish  ... FILE.cu...   only assembles the bundle from the work folder

The compiler is the part of the name after the dash (nvrtc or nvcc) unless --compiler says otherwise. A file is
compiled again only when its key (sources, flags, compiler) changed. The bundle folder is replaced by one rename, so
its manifest always describes its cubins; the same inputs give the same bytes.

manifest.json:
  schema 1, name, toolkit "12.8", compiler "nvrtc" | "nvcc", compiler_version, flags [..], architectures ["sm_90"..],
  source_hash (of all files), kernels [{kernel, file, source_hash, cubins [{architecture, file, bytes, sha256,
    functions [{name, registers, spill_store_bytes, spill_load_bytes, stack_bytes, shared_bytes, instructions,
    sass_sha256}]}]}]
registers and the bytes are ptxas's own words, per thread (shared_bytes: static, per block); sass_sha256 is that of
the function's .text section; instructions is its size over 16 bytes and counts padding.
"""

import argparse
import ctypes
import hashlib
import json
import mmap
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True
import toolkits  # noqa: E402  (found beside this repository's other scripts)

SCHEMA = 1
INSTRUCTION_BYTES = 16
COMMON_FLAGS = ["--std=c++17", "-I", "include", "-I", "kernels", "--ptxas-options=-v"]
FLAGS = {
    # Functions without a space belong to the device, and kernels may call constexpr functions of abi.h: the same
    # source in both compilers. Optimisation level 3 is both compilers' default for device code; nvcc gets it spelled.
    "nvrtc": [*COMMON_FLAGS, "--gpu-architecture={arch}", "-default-device"],
    "nvcc": [*COMMON_FLAGS, "--gpu-architecture={arch}", "-O3", "--expt-relaxed-constexpr", "-cubin"],
}


class Problem(Exception):
    """One sentence for the person at the terminal, and the compiler's log when there is one."""


def sha256(data):
    return hashlib.sha256(data).hexdigest()


# --- compilers -------------------------------------------------------------------------------------------------------


class Nvrtc:
    """NVRTC through ctypes. Its builtins library is loaded first, so that NVRTC finds it by name."""

    kind = "nvrtc"

    def __init__(self, toolkit):
        path = toolkits.nvrtc_library(toolkit)
        if path is None:
            raise Problem(f"{toolkit} has no libnvrtc.so with its builtins library; scripts/toolkits.py fetch brings both")
        self.include = toolkit / "include"
        self.path = path
        self.library = None

    def version(self):
        with open(self.path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = data.find(b"Cuda compilation tools, release ")
            text = data[at:at + 200].split(b"\0")[0].split(b"\n")[0].decode() if at >= 0 else ""
            at = data.find(b"Build cuda_")
            build = data[at:at + 200].split(b"\0")[0].split(b"\n")[0].decode() if at >= 0 else ""
        return ", ".join(part for part in ("NVRTC", text.removeprefix("Cuda compilation tools, "), build) if part)

    def load(self):
        if self.library is not None:
            return
        try:
            for builtins in sorted(self.path.parent.glob("libnvrtc-builtins.so.*")):
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            self.library = ctypes.CDLL(str(self.path))
        except OSError as error:
            raise Problem(f"cannot load NVRTC: {error}") from None
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def check(self, result, what):
        if result != 0:
            raise Problem(f"{what}: {self.library.nvrtcGetErrorString(result).decode()}")

    def text(self, program, size_of, get):
        size = ctypes.c_size_t()
        self.check(size_of(program, ctypes.byref(size)), "NVRTC")
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        self.check(get(program, buffer), "NVRTC")
        return buffer.raw[:size.value]

    def compile(self, source, flags):
        """(cubin or None, log)"""
        self.load()
        options = [*flags, "-I", str(self.include)]
        program = ctypes.c_void_p()
        self.check(self.library.nvrtcCreateProgram(ctypes.byref(program), (ROOT / source).read_bytes(), source.encode(),
                                                   0, None, None), "NVRTC")
        try:
            array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
            result = self.library.nvrtcCompileProgram(program, len(options), array)
            log = self.text(program, self.library.nvrtcGetProgramLogSize, self.library.nvrtcGetProgramLog)
            log = log.rstrip(b"\0").decode(errors="replace")
            if result != 0:
                return None, log or self.library.nvrtcGetErrorString(result).decode()
            return self.text(program, self.library.nvrtcGetCUBINSize, self.library.nvrtcGetCUBIN), log
        finally:
            self.library.nvrtcDestroyProgram(ctypes.byref(program))


class Nvcc:
    """nvcc as a program."""

    kind = "nvcc"

    def __init__(self, toolkit):
        self.program = toolkit / "bin" / "nvcc"
        if not os.access(self.program, os.X_OK):
            raise Problem(f"{toolkit} has no nvcc that can be run; the packages of 13.x have one, those of 12.8 do not")

    def version(self):
        said = subprocess.run([str(self.program), "--version"], capture_output=True, text=True, check=True).stdout
        release = re.search(r"release .*", said)
        build = re.search(r"Build .*", said)
        return ", ".join(["nvcc", *[found[0].strip() for found in (release, build) if found]])

    def compile(self, source, flags):
        """(cubin or None, log)"""
        with tempfile.TemporaryDirectory() as folder:
            cubin = pathlib.Path(folder) / "out.cubin"
            done = subprocess.run([str(self.program), *flags, "-o", str(cubin), source], capture_output=True, text=True,
                                  cwd=ROOT, check=False)
            return (cubin.read_bytes() if done.returncode == 0 else None), done.stdout + done.stderr


# --- what a cubin holds ----------------------------------------------------------------------------------------------


def text_sections(cubin):
    """Function name -> bytes of its .text section. Cubins are 64-bit little-endian ELF files."""
    if cubin[:6] != b"\x7fELF\x02\x01":
        raise Problem("the compiler gave no 64-bit little-endian ELF file")
    table, = struct.unpack_from("<Q", cubin, 0x28)
    entry_bytes, count, names_index = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = []
    for index in range(count):
        name, _, _, _, offset, size = struct.unpack_from("<IIQQQQ", cubin, table + index * entry_bytes)
        sections.append((name, offset, size))
    strings = sections[names_index][1]
    found = {}
    for name, offset, size in sections:
        end = cubin.index(b"\0", strings + name)
        label = cubin[strings + name:end].decode()
        if label.startswith(".text."):
            found[label.removeprefix(".text.")] = cubin[offset:offset + size]
    return found


def resources(log):
    """Function name -> what ptxas -v says of it."""
    found, name = {}, None
    for line in log.splitlines():
        entry = re.search(r"Compiling entry function '([^']+)'", line)
        properties = re.search(r"Function properties for (\S+)", line)
        if entry or properties:
            name = (entry or properties)[1]
            found.setdefault(name, {})
        if name is None:
            continue
        stack = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if stack:
            found[name].update(stack_bytes=int(stack[1]), spill_store_bytes=int(stack[2]), spill_load_bytes=int(stack[3]))
        used = re.search(r"Used (\d+) registers", line)
        if used:
            shared = re.search(r"(\d+) bytes smem", line)
            found[name].update(registers=int(used[1]), shared_bytes=int(shared[1]) if shared else 0)
    return found


def describe(cubin, log):
    """The functions of a cubin as the manifest lists them."""
    said = resources(log)
    functions = []
    for name, code in sorted(text_sections(cubin).items()):
        facts = said.get(name, {})
        if "registers" not in facts:  # a device function that was not inlined: part of its callers' story
            continue
        functions.append({"name": name, "registers": facts["registers"],
                          "spill_store_bytes": facts.get("spill_store_bytes", 0),
                          "spill_load_bytes": facts.get("spill_load_bytes", 0),
                          "stack_bytes": facts.get("stack_bytes", 0), "shared_bytes": facts["shared_bytes"],
                          "instructions": len(code) // INSTRUCTION_BYTES, "sass_sha256": sha256(code)})
    return functions


# --- bundles ---------------------------------------------------------------------------------------------------------


class Bundle:
    """One compiler of one toolkit, and where its results go."""

    def __init__(self, options):
        self.name = options.name
        self.toolkit = pathlib.Path(options.toolkit)
        kind = options.compiler or options.name.rpartition("-")[2]
        if kind not in FLAGS:
            raise Problem(f"no compiler '{kind}': the name ends in -nvrtc or -nvcc, or --compiler says which")
        self.toolkit_version = toolkits.version_of(self.toolkit)
        if self.toolkit_version is None:
            raise Problem(f"{self.toolkit} is no CUDA toolkit; scripts/toolkits.py list shows those there are")
        self.compiler = {"nvrtc": Nvrtc, "nvcc": Nvcc}[kind](self.toolkit)
        self.compiler_version = self.compiler.version()
        numbers = [item.strip().removeprefix("sm_") for item in re.split(r"[;,]", options.architectures) if item.strip()]
        for number in numbers:
            if not re.fullmatch(r"\d{2,3}[af]?", number):
                raise Problem(f"no architecture '{number}'; give numbers such as 90;120")
        self.architectures = [f"sm_{number}" for number in numbers]
        self.output = pathlib.Path(options.output)
        self.work = pathlib.Path(options.work) if options.work else self.output.parent / f".{self.name}.work"

    def sources(self, source):
        """All files that a kernel is made of, by path below the repository."""
        beside = [] if (ROOT / source).parent == HERE else (ROOT / source).parent.glob("*.cuh")
        return sorted({ROOT / source, *beside, *(HERE / "machine").glob("*.cuh"), ROOT / "include" / "arb" / "abi.h"})

    @staticmethod
    def hash_of(files):
        """Of names and contents."""
        digest = hashlib.sha256()
        for file in files:
            name = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else file.name
            digest.update(f"{name}\0{sha256(file.read_bytes())}\n".encode())
        return digest.hexdigest()

    def key(self, source):
        script = sha256(pathlib.Path(__file__).read_bytes())
        return sha256("\n".join([self.hash_of(self.sources(source)), " ".join(FLAGS[self.compiler.kind]),
                                 " ".join(self.architectures), self.toolkit_version, self.compiler_version, script]).encode())

    def part(self, source):
        return self.work / f"{pathlib.Path(source).stem}.json"

    def up_to_date(self, source):
        try:
            part = json.loads(self.part(source).read_text())
            return part["key"] == self.key(source) and all(
                sha256((self.work / cubin["file"]).read_bytes()) == cubin["sha256"] for cubin in part["entry"]["cubins"])
        except (OSError, ValueError, KeyError):
            return False

    def compile(self, source):
        """Leaves <kernel>.<architecture>.cubin and <kernel>.json in the work folder."""
        self.work.mkdir(parents=True, exist_ok=True)
        if self.up_to_date(source):
            os.utime(self.part(source))
            return
        kernel = pathlib.Path(source).stem
        entry = {"kernel": kernel, "file": source if not os.path.isabs(source) else pathlib.Path(source).name,
                 "source_hash": self.hash_of(self.sources(source)), "cubins": []}
        for arch in self.architectures:
            flags = [flag.format(arch=arch) for flag in FLAGS[self.compiler.kind]]
            cubin, log = self.compiler.compile(source, flags)
            if cubin is None:
                raise Problem(f"{source} does not compile with {self.compiler.kind} of toolkit {self.toolkit_version} for "
                              f"{arch}; the compiler's log:\n{log.rstrip()}")
            if re.search(r"\bwarning\b", log):
                print(f"compile_bundle.py: {source}, {self.name}, {arch}: the compiler warns:\n{log.rstrip()}",
                      file=sys.stderr)
            functions = describe(cubin, log)
            if not functions:
                raise Problem(f"{source} exports no kernel (an extern \"C\" __global__ function) for {arch}")
            file = f"{kernel}.{arch}.cubin"
            replace(self.work / file, cubin)
            entry["cubins"].append({"architecture": arch, "file": file, "bytes": len(cubin), "sha256": sha256(cubin),
                                    "functions": functions})
        replace(self.part(source), json.dumps({"key": self.key(source), "entry": entry}).encode())

    def finish(self, sources):
        """Replaces the bundle folder by the cubins of the work folder and their manifest."""
        entries = []
        for source in sorted(sources):
            if not self.up_to_date(source):
                raise Problem(f"{source} is not compiled, or not as it is now, for bundle {self.name}; run compile first")
            entries.append(json.loads(self.part(source).read_text())["entry"])
        manifest = {"schema": SCHEMA, "name": self.name, "toolkit": self.toolkit_version, "compiler": self.compiler.kind,
                    "compiler_version": self.compiler_version,
                    "flags": [flag for flag in FLAGS[self.compiler.kind] if "{arch}" not in flag],
                    "architectures": self.architectures,
                    "source_hash": self.hash_of(sorted({file for source in sources for file in self.sources(source)})),
                    "kernels": entries}
        text = (json.dumps(manifest, indent=1) + "\n").encode()
        names = {cubin["file"]: cubin["sha256"] for entry in entries for cubin in entry["cubins"]}
        if self.same(text, names):
            os.utime(self.output / "manifest.json")
            return
        self.output.parent.mkdir(parents=True, exist_ok=True)
        work = pathlib.Path(tempfile.mkdtemp(prefix=f".{self.name}.", dir=self.output.parent))
        try:
            fresh = work / "new"
            fresh.mkdir()
            for name in names:
                shutil.copyfile(self.work / name, fresh / name)
            (fresh / "manifest.json").write_bytes(text)
            if self.output.exists():
                self.output.rename(work / "old")
            fresh.rename(self.output)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        functions = sum(len(cubin["functions"]) for entry in entries for cubin in entry["cubins"])
        print(f"bundle {self.name}: {len(entries)} kernels, {len(names)} cubins, {functions} functions")

    def same(self, text, names):
        try:
            there = {file.name for file in self.output.iterdir()}
            return (there == {*names, "manifest.json"} and (self.output / "manifest.json").read_bytes() == text and
                    all(sha256((self.output / name).read_bytes()) == wanted for name, wanted in names.items()))
        except OSError:
            return False


def replace(path, data):
    """Writes a file so that nobody ever sees half of it."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_bytes(data)
    partial.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=("bundle", "compile", "finish"))
    parser.add_argument("--name", required=True, help="such as 12.8-nvrtc")
    parser.add_argument("--toolkit", required=True, help="its directory (scripts/toolkits.py find VERSION)")
    parser.add_argument("--compiler", choices=tuple(FLAGS))
    parser.add_argument("--architectures", default="90;120", help="default 90;120")
    parser.add_argument("--output", required=True, help="the bundle folder")
    parser.add_argument("--work", help="where compiled files wait (default beside the bundle folder)")
    parser.add_argument("sources", nargs="+", metavar="FILE.cu")
    options = parser.parse_args()
    os.umask(0o022)
    try:
        options.output = os.path.abspath(options.output)
        options.work = os.path.abspath(options.work) if options.work else None
        sources = []
        for source in options.sources:
            path = pathlib.Path(source).resolve()
            if not path.is_file():
                raise Problem(f"no file {source}")
            sources.append(path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path))
        bundle = Bundle(options)
        os.chdir(ROOT)  # so that include paths, and with them the compilers' messages, are relative
        if options.verb != "finish":
            for source in sources:
                bundle.compile(source)
        if options.verb != "compile":
            bundle.finish(sources)
    except Problem as problem:
        print(f"compile_bundle.py: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
