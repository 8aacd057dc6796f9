"""One child process and its three pipes, driven by a deadline.

Nothing here blocks: a child that never reads, never writes or writes without end cannot hold the run. POSIX only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.engine import Broken
from .errors import AdapterError
from .inbox import Inbox, Incoming

READ_BYTES = 1 << 20
STDERR_BYTES = 8 << 10
STDERR_LINES = 20
EXIT_S = 0.5
"""How long a child that closed its stdout may take to exit by itself."""
TICK_S = 0.25
"""How often a silent child is checked for having exited while a grandchild holds its pipes open."""


class Child:
    """A program in a process group of its own, its stdout cut into messages, the end of its stderr kept."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        self.inbox = Inbox()
        self._stderr = bytearray()
        self._outgoing: list[memoryview] = []
        self._ended = False
        self._killed = False
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env=None if env is None else dict(env),
                cwd=cwd,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise AdapterError(f"cannot start {command[0]}: {reason}") from None
        pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._in, self._out, self._err = (pipe.fileno() for pipe in pipes if pipe is not None)
        self._poll = select.poll()
        for fd in (self._in, self._out, self._err):
            os.set_blocking(fd, False)
        self._poll.register(self._out, select.POLLIN)
        self._poll.register(self._err, select.POLLIN)
        self._reaper = weakref.finalize(self, _kill, self._process)

    def send(self, chunks: Sequence[bytes]) -> None:
        """Queue a message and write as much of it as the pipe takes."""
        self._outgoing.extend(memoryview(chunk) for chunk in chunks if chunk)
        self._write()

    @property
    def unread(self) -> int:
        """Bytes of our messages that the child has not taken."""
        return sum(len(chunk) for chunk in self._outgoing)

    def _write(self) -> None:
        while self._outgoing:
            try:
                written = os.write(self._in, self._outgoing[0])
            except BlockingIOError:
                break
            except OSError:  # the child closed its stdin: its exit, or its silence, is what gets reported
                self._outgoing.clear()
                break
            rest = self._outgoing[0][written:]
            if rest:
                self._outgoing[0] = rest
            else:
                self._outgoing.pop(0)

    def receive(self, deadline: float) -> Incoming | Broken:
        """The next message, or how the child failed to send one before the (monotonic) deadline."""
        while True:
            incoming = self.inbox.take()
            if incoming is not None:
                return incoming
            if self._ended:
                return Broken("crash", self._end())
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return Broken("timeout", self._silence())
            self._turn(min(remaining, TICK_S))

    def drain(self) -> None:
        """Read what lies in the pipes, without waiting."""
        self._turn(0)

    def _turn(self, wait_s: float) -> None:
        if self._outgoing:
            self._poll.register(self._in, select.POLLOUT)
        ready = self._poll.poll(wait_s * 1000)
        if self._outgoing:
            self._poll.unregister(self._in)
        for fd, _ in ready:
            if fd == self._in:
                self._write()
            elif fd == self._err:
                data = _read(fd)
                if data == b"":
                    self._poll.unregister(fd)
                self._keep_stderr(data)
            else:
                data = _read(fd)
                if data == b"":
                    self._poll.unregister(fd)
                    self._ended = True
                elif data:
                    self.inbox.feed(data)
        if not ready and wait_s and self._exited():
            self._ended = True

    def _exited(self) -> bool:
        """Whether the child is gone; it stays a zombie, so that its group's number cannot pass to strangers."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self._process.poll() is not None
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:
            return True

    def _keep_stderr(self, data: bytes | None) -> None:
        self._stderr += data or b""
        del self._stderr[:-STDERR_BYTES]

    def _silence(self) -> str:
        if self.unread:
            return f"no reply in time; {self.unread} bytes of the request were not read"
        if len(self.inbox):
            return f"no whole reply in time; it began with {self.inbox.excerpt()}"
        return "no reply in time"

    def _end(self) -> str:
        patience = time.monotonic() + EXIT_S
        while not self._exited() and time.monotonic() < patience:
            time.sleep(0.005)
        exited = self._exited()
        self.kill()
        how = _status(self._process.returncode) if exited else "its stdout closed"
        left = f", in the middle of a message that began with {self.inbox.excerpt()}" if len(self.inbox) else ""
        tail = self.stderr_tail()
        return f"the process ended: {how}{left}" + (f"\n{tail}" if tail else "")

    def stderr_tail(self) -> str:
        """The last lines that the child wrote to stderr."""
        text = self._stderr.decode("utf-8", "replace")
        return "\n".join(text.splitlines()[-STDERR_LINES:])

    def wait(self, grace_s: float) -> None:
        """Let the child end by itself: close its stdin, read what it still writes, then kill what is left."""
        deadline = time.monotonic() + grace_s
        while self._outgoing and not self._ended and time.monotonic() < deadline:
            self._turn(TICK_S)
        if self._process.stdin is not None:
            self._outgoing.clear()
            self._process.stdin.close()
        while not self._ended and time.monotonic() < deadline:
            self._turn(min(TICK_S, max(0.0, deadline - time.monotonic())))
            if len(self.inbox) > READ_BYTES:
                break
        self.kill()

    def kill(self) -> None:
        """End the whole process group and read the last words of its stderr."""
        if self._killed:
            return
        self._killed = self._ended = True
        self._reaper()
        self._keep_stderr(_read(self._err))
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def _read(fd: int) -> bytes | None:
    try:
        return os.read(fd, READ_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _status(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
