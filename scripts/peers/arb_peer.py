"""What makes a Python script the worker's program of a peer library: libarb_worker.so measures, the script enqueues.

A peer is a subclass of Peer and a script that ends with `run(TheSubclass)`; docs/peers.md says how to add one. The
coordinator starts it as `python SCRIPT --config JSON --library libarb_worker.so`, its socket as descriptor 3.
"""

import argparse
import ctypes
import json
import os
import pathlib
import re
import sys

ABI = 1  # arb_peer_abi of src/worker/peer.h
SOCKET_FD = 3  # worker_socket_fd of src/wire.h


class Refusal(Exception):
    """A sentence that says why the peer cannot do what it was asked for; other exceptions are named by their type."""


class Peer:
    """What a peer library does; every method may raise, and its exception becomes a sentence in the rows."""

    def __init__(self, config):
        """`config`: the worker's configuration (src/wire.h, WorkerConfig), such as config["devices"]."""
        self.config = config
        self.version = ""  # "torch 2.11.0+cu130", set by start

    def start(self, device):
        """Imports the library and brings it up on a CUDA device; needs no other rank."""
        raise NotImplementedError

    def invite(self):
        """Of rank 0: a text of less than 1000 bytes by which the others find it."""
        raise NotImplementedError

    def join(self, invitation, rank, ranks, deadline_ms):
        """Makes a group of all ranks; waits for them, at most so long."""
        raise NotImplementedError

    def allocate(self, size_bytes):
        """The address of device memory in which inputs may lie; gives the one before back. Needs no other rank."""
        raise NotImplementedError

    def share(self):
        """Makes that memory known to all ranks; waits for them."""
        raise NotImplementedError

    def enqueue(self, contender, dtype, count, input_address, output_address, stream):
        """Enqueues one sum on a CUDA stream, which may be capturing: no allocation, no synchronisation.

        `dtype` is bf16, fp16 or fp32. The input lies in the memory of allocate; the output is it or anywhere."""
        raise NotImplementedError

    def finish(self):
        """Gives everything back."""


_write_text = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint64)


class ArbPeer(ctypes.Structure):
    """ArbPeer of src/worker/peer.h."""

    _fields_ = [
        ("abi", ctypes.c_uint64),
        ("last_error", _write_text),
        ("start", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32)),
        ("version", _write_text),
        ("invite", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64)),
        ("join", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)),
        ("allocate", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.POINTER(ctypes.c_void_p))),
        ("share", ctypes.CFUNCTYPE(ctypes.c_int)),
        ("enqueue", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_void_p,
                                     ctypes.c_void_p, ctypes.c_void_p)),
        ("finish", ctypes.CFUNCTYPE(None)),
    ]


def sentence_of(error):
    """An exception on one line: libraries append stack traces to theirs."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    if isinstance(error, Refusal):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def callbacks_of(peer):
    """The struct of C callbacks for a peer; it must be kept while C may call them. Nothing is raised through C."""
    last_error = ""

    def put(text, address, capacity_bytes):
        data = text.encode()[:capacity_bytes - 1].decode(errors="ignore").encode() + b"\0"
        ctypes.memmove(address, data, len(data))

    def guarded(call):
        def guard(*arguments):
            nonlocal last_error
            try:
                call(*arguments)
                return 0
            except BaseException as error:  # also SystemExit: a library must not end the worker in silence
                last_error = sentence_of(error)
                return 1
        return guard

    def allocate(size_bytes, address):
        address[0] = peer.allocate(size_bytes)

    def finish():
        try:
            peer.finish()
        except BaseException as error:
            print(f"the peer did not end well: {sentence_of(error)}", file=sys.stderr, flush=True)

    calls = {
        "last_error": lambda address, capacity: put(last_error, address, capacity),
        "start": guarded(peer.start),
        "version": lambda address, capacity: put(peer.version, address, capacity),
        "invite": guarded(lambda address, capacity: put(peer.invite(), address, capacity)),
        "join": guarded(lambda invitation, *who: peer.join(invitation.decode(), *who)),
        "allocate": guarded(allocate),
        "share": guarded(peer.share),
        "enqueue": guarded(lambda contender, dtype, *rest: peer.enqueue(contender.decode(), dtype.decode(), *rest)),
        "finish": finish,
    }
    types = dict(ArbPeer._fields_)
    return ArbPeer(abi=ABI, **{name: types[name](call) for name, call in calls.items()})


def _load_shared_first(library):
    """Loads what the worker's library and the peer will share, so that the newest wins: the loader takes whichever of
    a name comes first, and an older one lacks functions that the other side needs."""
    for module in ("ssl", "hashlib"):  # this Python's libcrypto before the one beside the worker
        try:
            __import__(module)
        except ImportError:
            pass
    newest = (-1, None)
    for folder in (library.parent, pathlib.Path(sys.prefix) / "lib", pathlib.Path("/usr/lib/x86_64-linux-gnu"),
                   pathlib.Path("/usr/lib64")):
        path = folder / "libstdc++.so.6"
        try:
            version = max(int(number) for number in re.findall(rb"GLIBCXX_3\.4\.(\d+)", path.read_bytes()))
        except (OSError, ValueError):
            continue
        if version > newest[0]:
            newest = (version, path)
    if newest[1] is not None:
        try:
            ctypes.CDLL(str(newest[1]))
        except OSError:
            pass  # of another machine type; the loader will find its own


def load_worker(library):
    """libarb_worker.so with its one entry declared. Raises OSError."""
    _load_shared_first(library)
    loaded = ctypes.CDLL(str(library))
    loaded.arb_worker_main.restype = ctypes.c_int
    loaded.arb_worker_main.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ArbPeer)]
    return loaded


def run(make_peer):
    """Serves the coordinator until it is done; does not return."""
    parser = argparse.ArgumentParser(description="A worker's program of arbench; `arbench run --peer` starts it.")
    parser.add_argument("--config", required=True)
    parser.add_argument("--library", type=pathlib.Path,
                        default=pathlib.Path(__file__).absolute().parent.parent / "lib" / "libarb_worker.so")
    arguments = parser.parse_args()
    try:
        worker = load_worker(arguments.library)
        callbacks = callbacks_of(make_peer(json.loads(arguments.config)))
    except Exception as error:
        print(f"the worker's library does not load into this Python: {sentence_of(error)}", file=sys.stderr, flush=True)
        os._exit(5)
    status = worker.arb_worker_main(arguments.config.encode(), SOCKET_FD, ctypes.byref(callbacks))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # no teardown of a library whose device work is over
