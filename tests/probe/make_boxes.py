#!/usr/bin/env python3
"""Writes the recorded boxes of tests/probe/boxes: synthetic trees, made so that each shows something.

  make_boxes.py        writes all of them anew

A box is root/ (what /sys, /proc, /usr/local and a Python environment would hold) and box.json (environment variables,
the answers of NVML and the driver, sizes of file systems). No file is from a real machine.
"""

import json
import os
import pathlib
import shutil
import struct

HERE = pathlib.Path(__file__).resolve().parent / "boxes"
GIB = 1 << 30


class Box:
    def __init__(self, name):
        self.folder = HERE / name
        shutil.rmtree(self.folder, ignore_errors=True)
        self.root = self.folder / "root"
        self.root.mkdir(parents=True)
        self.environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/home/ada", "USER": "ada"}
        self.answers = {}
        self.spaces = {"/dev/shm": {"size_bytes": 256 * GIB, "free_bytes": 250 * GIB}}

    def file(self, path, content, mode=0o644):
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            target.write_text(content.rstrip("\n") + "\n" if content else "")
        target.chmod(mode)

    def link(self, path, to):
        target = self.root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(to)

    def done(self):
        text = {"environment": self.environment, "answers": self.answers, "spaces": self.spaces}
        (self.folder / "box.json").write_text(json.dumps(text, indent=1) + "\n")

    # ---- host ----
    def host(self, processor, sockets, nodes, virtual=False, vendor="Supermicro", product="AS -5126GS-TNRT",
             cmdline="BOOT_IMAGE=/vmlinuz-6.8.0 ro", kernel="6.8.0-139-generic"):
        cpus = "".join(
            f"processor\t: {i}\nmodel name\t: {processor}\nphysical id\t: {i}\nflags\t\t: fpu sse2 avx512f{' hypervisor' if virtual else ''}\n\n"
            for i in range(sockets))
        self.file("/proc/cpuinfo", cpus)
        self.file("/proc/cmdline", cmdline)
        self.file("/proc/sys/kernel/osrelease", kernel)
        self.file("/proc/sys/kernel/hostname", "turing")
        self.file("/sys/class/dmi/id/sys_vendor", vendor)
        self.file("/sys/class/dmi/id/product_name", product)
        for node in range(nodes):
            self.file(f"/sys/devices/system/node/node{node}/cpulist", "0-63")

    def iommu(self, unit):
        self.file(f"/sys/class/iommu/{unit}/uevent", "")

    def driver(self, version, kind="Open Kernel Module", dwords='""'):
        self.file("/proc/driver/nvidia/version",
                  f"NVRM version: NVIDIA UNIX {kind} for x86_64  {version}  Release Build  (builder@host)\nGCC version:  gcc 13.3.0")
        self.file("/proc/driver/nvidia/params", f"ResmanDebugLevel: 4294967295\nEnableResizableBar: 0\nRegistryDwords: {dwords}")

    # ---- PCI ----
    def pci(self, path, speed, width, max_speed=None, acs=None, gpu=False, node=0, iommu=None, index=0):
        """path: 'pci0000:00/0000:00:01.0/...'; acs: None: no config readable, else the control bits."""
        address = path.split("/")[-1]
        folder = f"/sys/devices/{path}"
        self.file(f"{folder}/vendor", "0x10de" if gpu else "0x1022")
        self.file(f"{folder}/class", "0x030200" if gpu else "0x060400")
        self.file(f"{folder}/numa_node", str(node))
        for kind, value in (("current", speed), ("max", max_speed or speed)):
            self.file(f"{folder}/{kind}_link_speed", f"{value} GT/s PCIe")
            self.file(f"{folder}/{kind}_link_width", str(width))
        if acs is not None:
            config = bytearray(0x110)
            config[0x100:0x104] = struct.pack("<I", 0x000D | (1 << 16))
            config[0x106:0x108] = struct.pack("<H", acs)
            self.file(f"{folder}/config", bytes(config))
        self.link(f"/sys/bus/pci/devices/{address}", f"../../../devices/{path}")
        if gpu:
            self.link(f"{folder}/driver", "/sys/bus/pci/drivers/nvidia")
            (self.root / "sys/bus/pci/drivers/nvidia").mkdir(parents=True, exist_ok=True)
            self.file("/sys/bus/pci/drivers/nvidia/module_name", "nvidia")
        if iommu:
            self.file(f"/sys/kernel/iommu_groups/{index}/type", iommu)
            self.link(f"{folder}/iommu_group", f"/sys/kernel/iommu_groups/{index}")

    # ---- toolkits ----
    def toolkit(self, version, folder=None, nvcc=True, compat=None):
        folder = folder or f"/usr/local/cuda-{version}"
        major, minor = version.split(".")
        self.file(f"{folder}/include/cuda.h", f"#ifndef __cuda_cuda_h__\n#define CUDA_VERSION {int(major) * 1000 + int(minor) * 10}\n#endif")
        if nvcc:
            self.file(f"{folder}/bin/nvcc", "", 0o755)
        self.file(f"{folder}/lib64/libcudart.so.{version}.90", "")
        self.link(f"{folder}/lib64/libcudart.so.{major}", f"libcudart.so.{version}.90")
        self.file(f"{folder}/lib64/libnvrtc.so.{version}.93", "")
        self.link(f"{folder}/lib64/libnvrtc.so.{major}", f"libnvrtc.so.{version}.93")
        if compat:
            self.file(f"{folder}/compat/libcuda.so.{compat}", "")

    # ---- Python ----
    def python(self, prefix, version="3.12"):
        self.site = f"{prefix}/lib/python{version}/site-packages"
        self.file(f"{prefix}/pyvenv.cfg", f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {version}.3")
        self.file(f"{prefix}/bin/python3", "", 0o755)
        self.file(f"{self.site}/README.txt", "packages")
        self.environment["VIRTUAL_ENV"] = prefix

    def package(self, name, version):
        normal = name.replace("-", "_")
        self.file(f"{self.site}/{normal}-{version}.dist-info/METADATA", f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}")

    def torch(self, version, cuda):
        self.package("torch", version)
        self.file(f"{self.site}/torch/version.py", f"from typing import Optional\n__version__ = '{version}'\ncuda: Optional[str] = '{cuda}'")

    def cuda12_wheels(self, nccl="2.27.5", cudnn="9.10.2.21"):
        for name, one, library, so in (("nvidia-cuda-runtime-cu12", "12.8.90", "cuda_runtime", "libcudart.so.12"),
                                       ("nvidia-cuda-nvrtc-cu12", "12.8.93", "cuda_nvrtc", "libnvrtc.so.12"),
                                       ("nvidia-nccl-cu12", nccl, "nccl", "libnccl.so.2"),
                                       ("nvidia-cudnn-cu12", cudnn, "cudnn", "libcudnn.so.9")):
            self.package(name, one)
            self.file(f"{self.site}/nvidia/{library}/lib/{so}", "")

    def cuda13_wheels(self, nccl="2.28.9", cudnn="9.19.0.56"):
        for name, one, library, so in (("nvidia-cuda-runtime", "13.0.96", "cu13", "libcudart.so.13"),
                                       ("nvidia-cuda-nvrtc", "13.0.88", "cu13", "libnvrtc.so.13"),
                                       ("nvidia-nccl-cu13", nccl, "nccl", "libnccl.so.2"),
                                       ("nvidia-cudnn-cu13", cudnn, "cudnn", "libcudnn.so.9")):
            self.package(name, one)
            self.file(f"{self.site}/nvidia/{library}/lib/{so}", "")


def linked_with(*names):
    """A minimal ELF shared library that needs these."""
    strings = b"\0"
    offsets = []
    for name in names:
        offsets.append(len(strings))
        strings += name.encode() + b"\0"
    dynamic = b"".join(struct.pack("<qQ", 1, offset) for offset in offsets)
    strings_at = 64 + 2 * 56
    strings += b"\0" * (-len(strings) % 8)
    dynamic_at = strings_at + len(strings)
    dynamic += struct.pack("<qQ", 5, strings_at) + struct.pack("<qQ", 0, 0)
    size = dynamic_at + len(dynamic)
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, size, size, 0x1000)
    dyn = struct.pack("<IIQQQQQQ", 2, 4, dynamic_at, dynamic_at, dynamic_at, len(dynamic), len(dynamic), 8)
    return header + load + dyn + strings + dynamic


def uuid(index):
    return f"GPU-{index:08x}-0000-4000-8000-{index:012x}"


def gpus(addresses, name, capability, memory_gib, bar1_gib, generation=5, nvlinks=None, multicast=False, cluster=True):
    all_gpus = []
    for index, address in enumerate(addresses):
        gpu = {"index": index, "ordinal": index, "name": name, "uuid": uuid(index), "pci_address": "0000" + address,
               "compute_capability": capability, "memory_bytes": memory_gib * GIB, "bar1_bytes": bar1_gib * GIB,
               "pcie_generation": generation, "pcie_width_lanes": 16, "pcie_generation_max": generation, "pcie_width_max_lanes": 16,
               "multicast": multicast, "vmm_file_descriptor": True, "cluster_launch": cluster}
        if nvlinks is not None:
            gpu["nvlinks_active"] = nvlinks
        all_gpus.append(gpu)
    return all_gpus


PCIE_P2P = {"p2p_read": "ok", "p2p_write": "ok", "p2p_nvlink": "not supported", "p2p_atomics": "chipset not supported", "driver_access": True}


def sm120_two_sockets():
    """The starting case."""
    box = Box("sm120-8x-two-sockets")
    box.host("AMD EPYC 9575F 64-Core Processor", 2, 2, cmdline="BOOT_IMAGE=/vmlinuz-6.8.0 ro iommu=pt")
    box.iommu("ivhd0")
    box.driver("590.44.01")
    addresses = []
    for index in range(8):
        node = index // 4
        bus = 0x10 + index * 0x10
        bridge = f"pci0000:{bus:02x}"
        port = f"{bridge}/0000:{bus:02x}:01.1"
        address = f"0000:{bus + 1:02x}:00.0"
        box.pci(port, "32.0", 16, acs=0x0, node=node)
        box.pci(f"{port}/{address}", "32.0", 16, gpu=True, node=node, iommu="identity", index=index)
        addresses.append(address)
    box.answers = {"driver": "590.44.01", "cuda_driver": "13.1",
                   "gpus": gpus(addresses, "NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", 96, 128), "all_pairs": PCIE_P2P}
    box.toolkit("12.8")
    box.link("/usr/local/cuda", "cuda-12.8")
    box.python("/home/ada/serve")
    box.torch("2.10.0+cu128", "12.8")
    box.cuda12_wheels()
    box.package("triton", "3.6.0")
    box.package("flashinfer-python", "0.6.18")
    box.package("sglang", "0.5.9")
    box.package("sgl-kernel", "0.3.21")
    box.file(f"{box.site}/sgl_kernel/sm100/common_ops.abi3.so", linked_with("libcudart.so.12", "libnvrtc.so.12", "libc.so.6"))
    box.done()


def sm120_one_socket():
    box = Box("sm120-8x-one-socket-switches")
    box.host("AMD EPYC 9755 128-Core Processor", 1, 1, cmdline="BOOT_IMAGE=/vmlinuz-6.8.0 ro amd_iommu=off")
    box.file("/sys/class/dmi/id/board_name", "H14SSL")
    (box.root / "sys/kernel/iommu_groups").mkdir(parents=True)
    box.file("/sys/kernel/iommu_groups/.keep", "")
    box.driver("580.95.05")
    addresses = []
    for switch in range(2):
        root = 0x20 + switch * 0x40
        top = f"pci0000:{root:02x}/0000:{root:02x}:01.1"
        up = f"{top}/0000:{root + 1:02x}:00.0"
        box.pci(top, "32.0", 16, acs=0x0)
        box.pci(up, "32.0", 16, acs=0x0)
        for port in range(4):
            down = f"{up}/0000:{root + 2:02x}:{port:02x}.0"
            address = f"0000:{root + 3 + port:02x}:00.0"
            box.pci(down, "32.0", 16, acs=0x1D if switch == 1 else 0x0)
            box.pci(f"{down}/{address}", "32.0", 16, gpu=True)
            addresses.append(address)
    os.remove(box.root / "sys/kernel/iommu_groups/.keep")
    box.answers = {"driver": "580.95.05", "cuda_driver": "13.0",
                   "gpus": gpus(addresses, "NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", 96, 128), "all_pairs": PCIE_P2P}
    box.toolkit("12.9")
    box.toolkit("13.0", compat="580.95.05")
    box.link("/usr/local/cuda", "cuda-13.0")
    box.environment["PATH"] = "/usr/local/cuda-12.9/bin:" + box.environment["PATH"]
    box.environment["NCCL_P2P_LEVEL"] = "SYS"
    box.python("/opt/serve")
    box.torch("2.10.0", "12.8")
    box.cuda12_wheels()
    box.package("triton", "3.6.0")
    box.package("flashinfer-python", "0.6.4")
    box.package("flashinfer-jit-cache", "0.6.4+cu129")
    box.package("vllm", "0.17.0")
    box.file(f"{box.site}/vllm/_C.abi3.so", linked_with("libtorch.so", "libcudart.so.12"))
    box.done()


def geforce():
    box = Box("rtx5090-2x-no-p2p")
    box.host("AMD Ryzen 9 9950X 16-Core Processor", 1, 1, vendor="ASUS", product="ProArt X870E", kernel="6.17.0-12-generic")
    box.driver("575.64.03", "Open Kernel Module")
    addresses = []
    for index, bus in enumerate((1, 3)):
        port = f"pci0000:00/0000:00:0{index + 1}.1"
        address = f"0000:{bus:02x}:00.0"
        box.pci(port, "32.0", 8)
        box.pci(f"{port}/{address}", "32.0", 8, gpu=True, node=-1)
        addresses.append(address)
    cards = gpus(addresses, "NVIDIA GeForce RTX 5090", "12.0", 32, 32)
    for card in cards:
        card.update(pcie_width_lanes=8, pcie_width_max_lanes=16)
    box.answers = {"driver": "575.64.03", "cuda_driver": "12.9", "gpus": cards,
                   "all_pairs": {"p2p_read": "GPU not supported", "p2p_write": "GPU not supported", "p2p_nvlink": "not supported",
                                 "p2p_atomics": "GPU not supported", "driver_access": False}}
    box.toolkit("12.8")
    box.environment["PATH"] = "/usr/local/cuda-12.8/bin:" + box.environment["PATH"]
    box.environment["HOSTNAME"] = "turing"
    box.spaces = {"/dev/shm": {"size_bytes": 48 * GIB, "free_bytes": 48 * GIB}}
    box.python("/home/ada/vllm")
    box.torch("2.9.1+cu128", "12.8")
    box.cuda12_wheels()
    box.package("triton", "3.5.1")
    box.package("flashinfer-python", "0.7.4")
    box.package("vllm", "0.16.0+cu129")
    box.done()


def nvlink():
    box = Box("dgx-8x-nvlink")
    box.host("Intel(R) Xeon(R) Platinum 8480C", 2, 2, vendor="NVIDIA", product="DGXH200", cmdline="BOOT_IMAGE=/vmlinuz-6.8.0 ro intel_iommu=on")
    box.iommu("dmar0")
    box.driver("580.82.07", "Open Kernel Module")
    addresses = []
    for index in range(8):
        node = index // 4
        bus = 0x18 + index * 0x10
        top = f"pci0000:{bus:02x}/0000:{bus:02x}:01.0"
        up = f"{top}/0000:{bus + 1:02x}:00.0"
        down = f"{up}/0000:{bus + 2:02x}:00.0"
        address = f"0000:{bus + 3:02x}:00.0"
        for port in (top, up, down):
            box.pci(port, "32.0", 16, acs=0x1D, node=node)
        box.pci(f"{down}/{address}", "32.0", 16, gpu=True, node=node, iommu="DMA-FQ", index=index)
        addresses.append(address)
    box.answers = {"driver": "580.82.07", "cuda_driver": "13.0",
                   "gpus": gpus(addresses, "NVIDIA H200", "9.0", 141, 256, nvlinks=18, multicast=True),
                   "all_pairs": {"p2p_read": "ok", "p2p_write": "ok", "p2p_nvlink": "ok", "p2p_atomics": "ok", "driver_access": True}}
    box.toolkit("13.0")
    box.link("/usr/local/cuda", "cuda-13.0")
    box.environment["PATH"] = "/usr/local/cuda/bin:" + box.environment["PATH"]
    box.environment["CUDA_HOME"] = "/usr/local/cuda"
    box.python("/opt/serve")
    box.torch("2.11.0+cu130", "13.0")
    box.cuda13_wheels()
    box.package("triton", "3.6.0")
    box.package("flashinfer-python", "0.7.4")
    box.package("vllm", "0.24.0")
    box.file(f"{box.site}/vllm/_C.abi3.so", linked_with("libcudart.so.13"))
    box.package("sglang", "0.5.23")
    box.package("sglang-kernel", "0.4.1+cu130")
    box.done()


def virtual_machine():
    box = Box("vm-2x")
    box.host("Intel Xeon Processor (SapphireRapids)", 1, 1, virtual=True, vendor="QEMU", product="Standard PC (Q35 + ICH9, 2009)")
    box.driver("570.133.20", "Kernel Module")
    addresses = []
    for index in range(2):
        port = f"pci0000:00/0000:00:1{index}.0"
        address = f"0000:0{index + 5}:00.0"
        box.pci(port, "16.0", 16)
        box.pci(f"{port}/{address}", "16.0", 16, max_speed="32.0", gpu=True, node=-1)
        addresses.append(address)
    box.answers = {"driver": "570.133.20", "cuda_driver": "12.8",
                   "gpus": gpus(addresses, "NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", 96, 128, generation=5),
                   "all_pairs": {"common_ancestor": "PHB", "p2p_read": "chipset not supported", "p2p_write": "chipset not supported",
                                 "p2p_nvlink": "not supported", "p2p_atomics": "chipset not supported", "driver_access": False}}
    box.environment["CONDA_PREFIX"] = "/opt/conda"
    box.toolkit("12.8", "/opt/conda")
    box.site = "/opt/conda/lib/python3.11/site-packages"
    box.file("/opt/conda/bin/python3.11", "", 0o755)
    box.link("/opt/conda/bin/python3", "python3.11")
    box.torch("2.8.0+cu128", "12.8")
    box.cuda12_wheels(nccl="2.27.3", cudnn="9.10.2.21")
    box.package("triton", "3.4.0")
    box.done()


def container():
    box = Box("container-small-shm")
    box.host("AMD EPYC 9575F 64-Core Processor", 2, 2)
    box.file("/.dockerenv", "")
    box.driver("580.95.05")
    addresses = [f"0000:{bus:02x}:00.0" for bus in (0x11, 0x21, 0x31, 0x41)]
    box.answers = {"driver": "580.95.05", "cuda_driver": "13.0",
                   "gpus": gpus(addresses, "NVIDIA RTX PRO 6000 Blackwell Server Edition", "12.0", 96, 128),
                   "all_pairs": dict(PCIE_P2P, common_ancestor="NODE")}
    box.spaces = {"/dev/shm": {"size_bytes": 64 << 20, "free_bytes": 64 << 20}}
    box.toolkit("13.0")
    box.link("/usr/local/cuda", "cuda-13.0")
    box.environment["PATH"] = "/usr/local/cuda/bin:" + box.environment["PATH"]
    box.environment["HOME"] = "/root"
    box.environment["USER"] = "root"
    # The distribution's Python, as in most images.
    box.site = "/usr/local/lib/python3.12/dist-packages"
    box.file("/usr/bin/python3.12", "", 0o755)
    box.link("/usr/bin/python3", "python3.12")
    box.torch("2.11.0+cu130", "13.0")
    box.cuda13_wheels(nccl="2.30.3")
    box.package("triton", "3.6.0")
    box.package("flashinfer-python", "0.6.17")
    box.package("flashinfer-jit-cache", "0.6.17+cu130")
    box.package("sglang", "0.5.20")
    box.package("sglang-kernel", "0.4.0")
    box.file(f"{box.site}/sgl_kernel/sm100/common_ops.abi3.so", linked_with("libcudart.so.13"))
    box.done()


def no_gpu():
    box = Box("no-gpu")
    box.host("Intel(R) Core(TM) i7-1365U", 1, 1, vendor="LENOVO", product="21HES0", kernel="6.1.0-40-amd64")
    box.pci("pci0000:00/0000:00:02.0", "8.0", 4)
    box.answers = {"nvml_why": "NVML cannot be loaded (libnvidia-ml.so.1: cannot open shared object file); the NVIDIA driver brings it",
                   "driver_why": "no NVIDIA driver: libcuda.so.1 cannot be opened; install the driver (580 or newer runs every bundle)"}
    box.spaces = {"/dev/shm": {"size_bytes": 16 * GIB, "free_bytes": 16 * GIB}}
    box.environment["VIRTUAL_ENV"] = "/home/ada/gone"
    box.done()


if __name__ == "__main__":
    for make in (sm120_two_sockets, sm120_one_socket, geforce, nvlink, virtual_machine, container, no_gpu):
        make()
