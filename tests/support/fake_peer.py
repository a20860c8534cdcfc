"""A peer library that is none: it starts, and says what it was asked for. For tests of the callbacks."""


class FakePeer:
    """Keeps every call; one whose name is in `broken` raises, with a second line that must not come through."""

    def __init__(self, broken=()):
        self.broken = set(broken)
        self.calls = []
        self.version = ""

    def note(self, name, *arguments):
        self.calls.append((name, *arguments))
        if name in self.broken:
            raise ValueError(f"{name} is broken\nException raised from somewhere")

    def start(self, device):
        self.note("start", device)
        self.version = "fake 1.0"

    def invite(self):
        self.note("invite")
        return "/tmp/où"

    def join(self, invitation, rank, ranks, deadline_ms):
        self.note("join", invitation, rank, ranks, deadline_ms)

    def allocate(self, size_bytes):
        self.note("allocate", size_bytes)
        return 0x7f0000000000

    def share(self):
        self.note("share")

    def enqueue(self, contender, dtype, count, input_address, output_address, stream):
        self.note("enqueue", contender, dtype, count, input_address, output_address, stream)

    def finish(self):
        self.note("finish")
