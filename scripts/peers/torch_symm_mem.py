#!/usr/bin/env python3
"""torch's symmetric memory as contenders: torch_one_shot and torch_two_shot, without multicast (multimem)."""

import ctypes
import datetime
import os
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).absolute().parent))
from arb_peer import Peer, Refusal, run  # noqa: E402

NATIVE_ATOMICS = 3  # CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED


def without_atomics(devices):
    """Two CUDA devices of which one cannot do atomics in the other's memory, or None."""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuInit(0)
    for here in devices:
        for there in devices:
            able = ctypes.c_int(1)
            if here != there and driver.cuDeviceGetP2PAttribute(ctypes.byref(able), NATIVE_ATOMICS, here, there) == 0:
                if not able.value:
                    return here, there
    return None


class TorchSymmetricMemory(Peer):
    def __init__(self, config):
        super().__init__(config)
        self.memory = self.handle = self.folder = None

    def start(self, device):
        # No operation here uses multicast, and where it does not work torch's set-up fails or hangs.
        os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"
        os.environ["TORCH_SYMMMEM"] = "CUDA"
        # One allocation, one mapping: from a pool a tensor may lie inside of another, and is never given back.
        os.environ["TORCH_SYMMMEM_IMPLICIT_POOL"] = "0"
        # All ranks are on this machine, whose own name need not resolve.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        try:
            import torch
            import torch.distributed
            import torch.distributed._symmetric_memory as symmetric_memory
        except Exception as error:
            raise Refusal(f"torch or its symmetric memory cannot be imported by {sys.executable}: {error}") from error
        self.torch, self.symmetric_memory = torch, symmetric_memory
        if not torch.cuda.is_available():
            raise Refusal(f"torch {torch.__version__} can use no GPU here")
        if torch.version.cuda is None or not torch.distributed.is_gloo_available():
            raise Refusal(f"torch {torch.__version__} was built without CUDA or without gloo, and it takes both")
        pair = without_atomics(self.config["devices"])
        if pair is not None:
            raise Refusal("torch's symmetric memory signals with atomics in peers' memory, and GPUs %d and %d have none "
                          "over their link: its operations would never end" % pair)
        operations = torch.ops.symm_mem
        for name in ("one_shot_all_reduce_out", "two_shot_all_reduce_", "two_shot_all_reduce_out"):
            if not hasattr(operations, name):
                raise Refusal(f"torch {torch.__version__} has no symm_mem.{name}")
        self.dtypes = {"bf16": torch.bfloat16, "fp32": torch.float32}
        self.device = torch.device("cuda", device)
        torch.cuda.set_device(self.device)
        torch.zeros(1, device=self.device)
        torch.cuda.synchronize()
        self.version = f"torch {torch.__version__}"

    def invite(self):
        # Sockets will lie here, and their paths must be short.
        self.folder = tempfile.mkdtemp(prefix="arbench-torch-", dir="/tmp" if os.access("/tmp", os.W_OK) else None)
        return os.path.join(self.folder, "store")

    def join(self, invitation, rank, ranks, deadline_ms):
        # torch shares memory over sockets named by process number; elsewhere a killed process may have left one.
        os.environ["TMPDIR"] = os.path.dirname(invitation)
        distributed = self.torch.distributed
        timeout = datetime.timedelta(milliseconds=deadline_ms)
        store = distributed.FileStore(invitation, ranks)
        store.set_timeout(timeout)
        # The group hands out addresses; no data goes through its backend.
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timeout)
        self.group = distributed.group.WORLD.group_name

    def allocate(self, size_bytes):
        self.memory = self.handle = None
        self.memory = self.symmetric_memory.empty(size_bytes, dtype=self.torch.uint8, device=self.device)
        return self.memory.data_ptr()

    def share(self):
        self.handle = self.symmetric_memory.rendezvous(self.memory, self.group)
        if self.handle is None:
            raise Refusal("torch shared no memory and did not say why")
        self.torch.cuda.synchronize()

    def enqueue(self, contender, dtype, count, input_address, output_address, stream):
        torch, operations = self.torch, self.torch.ops.symm_mem
        kind = self.dtypes.get(dtype)
        if kind is None:
            raise Refusal(f"torch's symmetric-memory kernels do not add {dtype}")
        size_bytes = count * kind.itemsize
        begin = input_address - self.memory.data_ptr()
        source = self.memory[begin:begin + size_bytes].view(kind)  # the operations want it of their memory
        with torch.no_grad(), torch.cuda.stream(torch.cuda.ExternalStream(stream, device=self.device)):
            if contender == "torch_two_shot" and input_address == output_address:
                operations.two_shot_all_reduce_(source, "sum", self.group)
                return
            storage = torch._C._construct_storage_from_data_pointer(output_address, self.device, size_bytes)
            result = torch.empty(0, dtype=kind, device=self.device).set_(storage)
            if contender == "torch_one_shot":
                operations.one_shot_all_reduce_out(source, "sum", self.group, result)
            elif contender == "torch_two_shot":
                operations.two_shot_all_reduce_out(source, "sum", self.group, result)
            else:
                raise Refusal(f"torch's symmetric memory has no {contender}")

    def finish(self):
        self.memory = self.handle = None
        if self.torch.distributed.is_initialized():
            self.torch.distributed.destroy_process_group()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    run(TorchSymmetricMemory)
