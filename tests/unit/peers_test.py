#!/usr/bin/env python3
"""Peers' side of the worker: the callbacks as C sees them, and libarb_worker.so in this Python; run by CTest. No GPU.

  peers_test.py REPOSITORY LIBRARY
"""

import ctypes
import json
import pathlib
import re
import socket
import subprocess
import sys
import threading
import unittest

REPOSITORY, LIBRARY = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
sys.dont_write_bytecode = True
sys.path[:0] = [str(REPOSITORY / "scripts" / "peers"), str(REPOSITORY / "tests" / "support")]
import arb_peer  # noqa: E402
from fake_peer import FakePeer  # noqa: E402

WORKER = arb_peer.load_worker(LIBRARY)
CONFIG = {"devices": [0, 1], "bundle_folders": [], "nccl_library": "", "deadline_ms": 1000, "world": "threads", "rank": 0,
          "peer": "fake"}


def text_of(write, capacity_bytes=1024):
    buffer = ctypes.create_string_buffer(b"x" * capacity_bytes, capacity_bytes)
    write(ctypes.addressof(buffer), capacity_bytes)
    return buffer.value.decode()


class Callbacks(unittest.TestCase):
    def test_every_call_arrives_as_it_was_made(self):
        peer = FakePeer()
        c = arb_peer.callbacks_of(peer)
        address = ctypes.c_void_p()
        invitation = ctypes.create_string_buffer(1024)
        self.assertEqual(c.start(3), 0)
        self.assertEqual(text_of(c.version), "fake 1.0")
        self.assertEqual(c.invite(ctypes.addressof(invitation), 1024), 0)
        self.assertEqual(c.join(invitation.value, 1, 2, 5000), 0)
        self.assertEqual(c.allocate(1 << 33, ctypes.byref(address)), 0)
        self.assertEqual(address.value, 0x7f0000000000)
        self.assertEqual(c.share(), 0)
        self.assertEqual(c.enqueue(b"fake_op", b"bf16", 1 << 33, 0x7f0000000100, 0x7e0000000000, 0x55), 0)
        c.finish()
        self.assertEqual(peer.calls, [
            ("start", 3), ("invite",), ("join", "/tmp/où", 1, 2, 5000), ("allocate", 1 << 33), ("share",),
            ("enqueue", "fake_op", "bf16", 1 << 33, 0x7f0000000100, 0x7e0000000000, 0x55), ("finish",)])

    def test_what_is_raised_becomes_a_sentence(self):
        peer = FakePeer(["start", "invite", "join", "allocate", "share", "enqueue", "finish"])
        c = arb_peer.callbacks_of(peer)
        address = ctypes.c_void_p()
        for name, call in (("start", lambda: c.start(0)), ("invite", lambda: c.invite(0, 0)),
                           ("join", lambda: c.join(b"x", 0, 2, 1)),
                           ("allocate", lambda: c.allocate(1, ctypes.byref(address))), ("share", c.share),
                           ("enqueue", lambda: c.enqueue(b"x", b"bf16", 1, 1, 1, 1))):
            self.assertNotEqual(call(), 0, name)
            self.assertEqual(text_of(c.last_error), f"ValueError: {name} is broken")
        c.finish()  # says so on stderr and raises nothing

    def test_a_library_that_ends_the_program_does_not(self):
        peer = FakePeer()
        peer.start = lambda device: sys.exit("no licence")
        c = arb_peer.callbacks_of(peer)
        self.assertNotEqual(c.start(0), 0)
        self.assertEqual(text_of(c.last_error), "SystemExit: no licence")

    def test_texts_are_cut_between_letters_and_end(self):
        peer = FakePeer()
        peer.version = "é" * 100
        c = arb_peer.callbacks_of(peer)
        self.assertEqual(text_of(c.version, 10), "é" * 4)

    def test_the_struct_is_the_headers(self):
        header = (REPOSITORY / "src" / "worker" / "peer.h").read_text()
        body = re.sub(r"//[^\n]*", "", header[header.index("struct ArbPeer {"):header.index("\n};")])
        names = re.findall(r"\(\*(\w+)\)|std::uint64_t (abi);", body)
        self.assertEqual([one or other for one, other in names], [name for name, _ in arb_peer.ArbPeer._fields_])
        self.assertIn(f"arb_peer_abi = {arb_peer.ABI}", header)
        for name, kind in arb_peer.ArbPeer._fields_[1:]:
            arguments = re.search(rf"\(\*{name}\)\((.*?)\)", body, re.S).group(1)
            count = 0 if arguments.strip() == "void" else arguments.count(",") + 1
            self.assertEqual(len(kind._argtypes_), count, name)


class Library(unittest.TestCase):
    def answers(self, peer_struct, requests, **config):
        """What the worker answers in this very Python, and its status."""
        ours, theirs = socket.socketpair()
        status = []
        text = json.dumps({**CONFIG, **config}).encode()
        thread = threading.Thread(target=lambda: status.append(WORKER.arb_worker_main(text, theirs.fileno(), peer_struct)))
        thread.start()
        with ours, theirs, ours.makefile("rw") as lines:
            replies = []
            for request in requests:
                lines.write(json.dumps(request) + "\n")
                lines.flush()
                replies.append(json.loads(lines.readline()))
            thread.join(20)
        self.assertFalse(thread.is_alive())
        return replies, status[0]

    def test_it_brings_the_peer_up_before_anything_else(self):
        peer = FakePeer()
        c = arb_peer.callbacks_of(peer)
        (hello, _), status = self.answers(ctypes.byref(c), [{"op": "hello"}, {"op": "quit"}], devices=[4, 7], rank=1)
        self.assertEqual(status, 0)
        self.assertEqual(peer.calls, [("start", 7), ("finish",)])
        if hello["error"]:  # no driver here
            self.assertIn("libcuda", hello["error"])
        else:
            self.assertEqual(hello["hello"]["peer_version"], "fake 1.0")

    def test_a_problem_of_the_peer_is_the_whole_answer(self):
        cases = []
        broken = FakePeer(["start"])
        cases.append((arb_peer.callbacks_of(broken), "ValueError: start is broken"))
        other = arb_peer.callbacks_of(FakePeer())
        other.abi = arb_peer.ABI + 1
        cases.append((other, f"version {arb_peer.ABI + 1} of ArbPeer"))
        partial = arb_peer.callbacks_of(FakePeer())
        partial.share = type(partial.share)()
        cases.append((partial, "leaves a function"))
        for struct, words in cases:
            (hello, _), status = self.answers(ctypes.byref(struct), [{"op": "hello"}, {"op": "quit"}])
            self.assertEqual((hello["error"], status), ("", 0))
            self.assertIn(words, hello["hello"]["peer_problem"])
            self.assertEqual(hello["hello"]["devices"], [])
        self.assertEqual(broken.calls, [("start", 0)], "nothing to finish")
        (hello, _), _ = self.answers(None, [{"op": "hello"}, {"op": "quit"}])
        self.assertIn("does not bring fake", hello["hello"]["peer_problem"])

    def test_nonsense_ends_it_with_a_status(self):
        self.assertEqual(WORKER.arb_worker_main(b"no JSON", -1, None), 1)
        self.assertEqual(WORKER.arb_worker_main(None, -1, None), 1)


class Programs(unittest.TestCase):
    def test_each_is_a_program_that_loads_the_library_and_says_hello(self):
        scripts = [path for path in (REPOSITORY / "scripts" / "peers").glob("*.py") if path.name != "arb_peer.py"]
        self.assertTrue(scripts)
        starter = ("import os, sys; os.dup2(int(sys.argv[1]), 3, inheritable=True); "
                   "os.execv(sys.executable, [sys.executable, '-B', *sys.argv[2:]])")
        for script in scripts:
            ours, theirs = socket.socketpair()
            config = json.dumps({**CONFIG, "peer": "any"})
            with ours, ours.makefile("rw") as lines:
                with theirs:
                    process = subprocess.Popen(
                        [sys.executable, "-c", starter, str(theirs.fileno()), str(script), "--config", config, "--library",
                         str(LIBRARY)], pass_fds=[theirs.fileno()])
                lines.write('{"op":"hello"}\n')
                lines.flush()
                hello = json.loads(lines.readline())
                # Here: no library, or no GPU, or a peer that works.
                self.assertTrue(hello["error"] or hello["hello"]["peer_problem"] or hello["hello"]["peer_version"])
                lines.write('{"op":"quit"}\n')
                lines.flush()
                lines.readline()
            self.assertEqual(process.wait(60), 0)

    def test_a_library_that_does_not_load_is_a_sentence(self):
        script = REPOSITORY / "scripts" / "peers" / "torch_symm_mem.py"
        done = subprocess.run([sys.executable, "-B", script, "--config", json.dumps(CONFIG), "--library", "/nowhere.so"],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 5)
        self.assertIn("the worker's library does not load into this Python", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
