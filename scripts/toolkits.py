#!/usr/bin/env python3
"""Lists, finds and fetches CUDA toolkits by version.

  toolkits.py list                      one line a toolkit: version, what it has, where
  toolkits.py find VERSION [--with P]   its directory; P: nvcc, nvrtc or headers (may repeat)
  toolkits.py fetch VERSION...          from the Python package index into the cache, pinned in toolkits.lock
  toolkits.py ensure VERSION...         like fetch, but content with a complete toolkit found elsewhere
  toolkits.py headers                   a directory that holds cuda.h (all that host code needs)

VERSION is 12.8, 13.0 ... or a library such as nccl-cu12==2.28.9. Searched in this order: $CUDA_HOME,
/usr/local/cuda*, then the cache ${ARB_TOOLKITS:-~/.cache/arbench/toolkits}. Fetched toolkits have the
layout of an installed one: bin, include, lib, nvvm. Results go to stdout, remarks to stderr.
"""

import argparse
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
LOCK = HERE / "toolkits.lock"
VENV = HERE.parent / ".venv"
PINS = "arbench-pins.txt"  # in a fetched toolkit: the lines of the lock it was made from, written last
PARTS = ("nvcc", "nvrtc", "headers")


class Problem(Exception):
    """One sentence for the person at the terminal: what is wrong and what would work."""


def cache_directory():
    chosen = os.environ.get("ARB_TOOLKITS")
    return pathlib.Path(chosen) if chosen else pathlib.Path.home() / ".cache" / "arbench" / "toolkits"


def read_lock():
    """Name -> packages with exact versions, in the order of the lock."""
    sets, current = {}, None
    for number, line in enumerate(LOCK.read_text().splitlines(), 1):
        line = line.split("#")[0].strip()
        if not line:
            continue
        if line.startswith("[") and line.endswith("]"):
            current = sets.setdefault(line[1:-1], [])
        elif current is not None and re.fullmatch(r"[a-z0-9-]+==[0-9.]+", line):
            current.append(line)
        else:
            raise Problem(f"{LOCK.name} line {number} is neither [version] nor package==version: {line}")
    return sets


def version_of(root):
    """'13.0' for a toolkit directory, or None."""
    header = root / "include" / "cuda.h"
    if header.is_file():
        found = re.search(r"^#define CUDA_VERSION (\d+)", header.read_text(errors="replace"), re.MULTILINE)
        if found:
            number = int(found[1])
            return f"{number // 1000}.{number % 1000 // 10}"
    for library in sorted(glob.glob(str(root / "lib*" / "libnvrtc-builtins.so.*"))):
        found = re.search(r"\.so\.(\d+\.\d+)", library)
        if found:
            return found[1]
    return None


def parts_of(root):
    """What a toolkit directory can do, of PARTS."""
    parts = []
    if os.access(root / "bin" / "nvcc", os.X_OK):
        parts.append("nvcc")
    if nvrtc_library(root):
        parts.append("nvrtc")
    if (root / "include" / "cuda.h").is_file():
        parts.append("headers")
    return parts


def nvrtc_library(root):
    """Path of libnvrtc.so.N in a toolkit, or None. Its builtins library lies beside it."""
    for folder in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
        found = sorted(glob.glob(str(root / folder / "libnvrtc.so.*")), key=len)
        if found and glob.glob(str(root / folder / "libnvrtc-builtins.so.*")):
            return pathlib.Path(found[0])
    return None


def toolkits():
    """(version, parts, directory) of every toolkit, in the order in which they are preferred."""
    places = [os.environ["CUDA_HOME"]] if os.environ.get("CUDA_HOME") else []
    places += sorted(glob.glob("/usr/local/cuda*"))
    places += sorted(str(place) for place in cache_directory().glob("[0-9]*.[0-9]*"))
    seen = set()
    for place in places:
        root = pathlib.Path(place).resolve()
        if root in seen or not root.is_dir():
            continue
        seen.add(root)
        version, parts = version_of(root), parts_of(root)
        if version and parts:
            yield version, parts, root


def find(version, needed=()):
    """The first toolkit of that version that has all needed parts, or None."""
    if "==" in version:
        root = cache_directory() / version.replace("==", "-")
        return root if (root / PINS).is_file() else None
    for found, parts, root in toolkits():
        if found != version or not set(needed) <= set(parts):
            continue
        if needed or "nvcc" in parts or "nvrtc" in parts:
            return root
    return None


def python_with_pip():
    """The command of a Python that has pip: this one, else that of the repository's .venv, made when missing."""
    for python in (sys.executable, str(VENV / "bin" / "python")):
        if os.path.exists(python) and subprocess.run([python, "-m", "pip", "--version"], capture_output=True,
                                                     check=False).returncode == 0:
            return python
    made = subprocess.run([sys.executable, "-m", "venv", str(VENV)], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        shutil.rmtree(VENV, ignore_errors=True)
        raise Problem("this Python has neither pip nor a working venv module; install python3-venv (or python3-pip)")
    return str(VENV / "bin" / "python")


def unpack(wheel, root):
    """Unpacks a wheel's nvidia/<package>/ tree into root, so that several wheels make one toolkit."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            parts = pathlib.PurePosixPath(entry.filename).parts
            if entry.is_dir() or len(parts) < 3 or parts[0] != "nvidia" or parts[-1] == "__init__.py":
                continue
            if ".alt.so" in parts[-1] or ".." in parts:  # the alternative build of NVRTC: 110 MB, unused here
                continue
            target = root.joinpath(*parts[2:])
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, open(target, "wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
            mode = (entry.external_attr >> 16) & 0o777
            runs = target.parent.name == "bin"  # wheels may lack the run bit
            target.chmod((mode or 0o644) | 0o444 | (0o111 if runs else 0))


def fetch(version):
    """Makes the toolkit in the cache unless it is there as pinned; returns its directory."""
    sets = read_lock()
    if version not in sets and re.fullmatch(r"nccl-cu1[23]==[0-9.]+", version):
        sets[version] = [f"nvidia-{version}"]
    if version not in sets:
        raise Problem(f"no toolkit {version} in {LOCK.name}; it has {', '.join(sets)}")
    packages = sets[version]
    pins = "\n".join(packages) + "\n"
    cache = cache_directory()
    root = cache / version.replace("==", "-")
    if (root / PINS).is_file() and (root / PINS).read_text() == pins:
        return root
    started = time.monotonic()
    print(f"fetching {version}: {' '.join(packages)}", file=sys.stderr, flush=True)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        work = pathlib.Path(tempfile.mkdtemp(prefix=".fetch-", dir=cache))
    except OSError as error:
        raise Problem(f"cannot write to {cache} ({error.strerror}); set ARB_TOOLKITS to a directory that can be "
                      "written") from None
    try:
        wheels, tree = work / "wheels", work / "toolkit"
        tree.mkdir()
        command = [python_with_pip(), "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
                   "--no-deps", "--only-binary=:all:", "--dest", str(wheels), *packages]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            errors = [line for line in lines if line.startswith("ERROR")] or lines or ["no reason given"]
            raise Problem(f"pip could not download {version} ({errors[-1].removeprefix('ERROR: ')}); "
                          "check that a package index can be reached")
        for wheel in sorted(wheels.glob("*.whl")):
            unpack(wheel, tree)
        if (tree / "lib").is_dir() and not (tree / "lib64").exists():
            (tree / "lib64").symlink_to("lib")
        (tree / PINS).write_text(pins)
        if root.exists():  # older pins
            root.rename(work / "old")
        try:
            tree.rename(root)
        except OSError:
            if not (root / PINS).is_file():  # else somebody fetched the same at the same time
                raise
    except (OSError, zipfile.BadZipFile) as error:
        raise Problem(f"cannot make {root}: {error}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"fetched {version} in {time.monotonic() - started:.1f} s", file=sys.stderr)
    return root


def headers():
    """A directory that holds cuda.h, the newest one found."""
    def key(entry):
        return [int(part) for part in entry[0].split(".")]
    found = [entry for entry in toolkits() if "headers" in entry[1]]
    return max(found, key=key)[2] / "include" if found else None


def complete(version):
    """The parts that a fetched toolkit of this version would have."""
    return [] if "==" in version else ["nvrtc", "headers"] + ([] if version.startswith("12.") else ["nvcc"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("list")
    finder = verbs.add_parser("find")
    finder.add_argument("version")
    finder.add_argument("--with", dest="needed", choices=PARTS, action="append", default=[])
    for name in ("fetch", "ensure"):
        verbs.add_parser(name).add_argument("versions", nargs="+", metavar="VERSION")
    verbs.add_parser("headers")
    options = parser.parse_args()
    try:
        if options.verb == "list":
            for version, parts, root in toolkits():
                print(f"{version:6} {','.join(parts):20} {root}")
            for root in sorted(cache_directory().glob("nccl-*")):
                print(f"{root.name:27} {root}")
        elif options.verb == "find":
            root = find(options.version, options.needed)
            if root is None:
                wanted = f" with {' and '.join(options.needed)}" if options.needed else ""
                remedy = f"scripts/toolkits.py fetch {options.version} would bring it"
                if options.version.startswith("12.") and "nvcc" in options.needed:
                    remedy = "the packages of 12.x have no nvcc, so it takes an installed toolkit"
                raise Problem(f"no toolkit {options.version}{wanted} in $CUDA_HOME, /usr/local/cuda* or "
                              f"{cache_directory()}; {remedy}")
            print(root)
        elif options.verb == "headers":
            root = headers()
            if root is None:
                raise Problem("no cuda.h in $CUDA_HOME, /usr/local/cuda* or the cache; "
                              "scripts/toolkits.py fetch 12.8 would bring one")
            print(root)
        else:
            for version in options.versions:
                root = find(version, complete(version)) if options.verb == "ensure" else None
                print(root or fetch(version))
    except Problem as problem:
        print(f"toolkits.py: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
