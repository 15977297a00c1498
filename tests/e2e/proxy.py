"""A TCP proxy on loopback whose connections a test can break: the processes at both ends live on."""

import contextlib
import socket
import struct
import threading


class Proxy:
    """Passes every connection to `host`:`port` on; connections made after a cut work again."""

    def __init__(self, host, port):
        self._target = (host, port)
        self._lock = threading.Lock()
        self._open = set()
        self.num_accepted = 0
        self._listener = socket.create_server((host, 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # closed
            try:
                far = socket.create_connection(self._target, timeout=60)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self.num_accepted += 1
                self._open |= {near, far}
            for source, target in ((near, far), (far, near)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source, target):
        with contextlib.suppress(OSError):
            while received := source.recv(65536):
                target.sendall(received)
        for end in (source, target):
            self._break(end)

    def _break(self, end):
        """With a reset, and whatever was under way is lost."""
        with self._lock:
            if end not in self._open:
                return
            self._open.discard(end)
        with contextlib.suppress(OSError):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.shutdown(socket.SHUT_RDWR)
        end.close()

    def cut(self):
        """Breaks every connection that is open now; how many there were."""
        with self._lock:
            ends = list(self._open)
        for end in ends:
            self._break(end)
        return len(ends) // 2

    def close(self):
        self._listener.close()
        self.cut()
