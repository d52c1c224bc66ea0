"""Exchange bytes over plain TCP between every pair of hosts, on the proof's ports: a hung ring names no pair."""

import errno
import queue
import socket
import threading
import time

SIZE = 1 << 20  # each way: more than any buffer on the path holds
MEETING_TIMEOUT_S = 30.0  # units start within some seconds of each other
AT_ONCE = 32
STEP_S = 5.0


def lost(index, addresses, nonce, patience=MEETING_TIMEOUT_S):
    """Return [{"partner", "message"}] for the hosts with which nothing could be exchanged in time.

    The lower index of each pair dials. The port is free again on return.
    """
    ends, over = time.monotonic() + patience, threading.Event()
    met, reasons, todo = queue.Queue(), {}, queue.Queue()
    with listen(place_of(addresses[index])[1]) as listener:
        server = threading.Thread(target=serve, args=(listener, nonce, met, over), daemon=True)
        server.start()
        for partner in range(index + 1, len(addresses)):
            todo.put(partner)
        for _ in range(min(AT_ONCE, len(addresses) - index - 1)):
            work = (todo, index, addresses, nonce, met, reasons, over)
            threading.Thread(target=dial_each, args=work, daemon=True).start()
        missing = {partner: "it did not connect" for partner in range(len(addresses)) if partner != index}
        while missing and time.monotonic() < ends:
            try:
                missing.pop(met.get(timeout=max(0.01, ends - time.monotonic())), None)
            except queue.Empty:
                break
        over.set()
        server.join()  # a pending accept would keep the port in use
    return [{"partner": partner, "message": reasons.get(partner, why)} for partner, why in sorted(missing.items())]


def dial_each(todo, index, addresses, nonce, met, reasons, over):
    """Dial one partner after another. One that cannot be reached goes to the end: it may not have started yet."""
    while not over.is_set():
        try:
            partner = todo.get(timeout=0.2)
        except queue.Empty:
            continue
        try:
            with socket.create_connection(place_of(addresses[partner]), STEP_S) as connection:
                connection.sendall(f"{nonce} {index}\n".encode() + b"." * SIZE)
                receive(connection, SIZE)
                connection.sendall(b"!")
            met.put(partner)
        except OSError as fault:
            reasons[partner] = (fault.strerror or str(fault)).lower()
            todo.put(partner)
            over.wait(0.2)


def serve(listener, nonce, met, over):
    listener.settimeout(0.1)
    while not over.is_set():
        try:
            connection = listener.accept()[0]
        except OSError:
            continue
        threading.Thread(target=answer, args=(connection, nonce, met), daemon=True).start()


def answer(connection, nonce, met):
    """Receive a partner's bytes and send as many back; it confirms that they arrived. Hang up on strangers."""
    with connection:
        connection.settimeout(STEP_S)
        try:
            head = b""
            while not head.endswith(b"\n") and len(head) < 100:
                head += receive(connection, 1)
            said, _, partner = head.decode("utf-8", "replace").strip().partition(" ")
            if said != nonce or not partner.isdigit():
                return
            receive(connection, SIZE)
            connection.sendall(b"." * SIZE)
            receive(connection, 1)
            met.put(int(partner))
            connection.recv(1)  # let the partner close first: the side that does keeps its port busy for a minute
        except OSError:
            return


def receive(connection, count):
    """Receive ``count`` bytes and return the last chunk. Raise OSError if they do not arrive."""
    data = b""
    while count:
        data = connection.recv(min(count, 65536))
        if not data:
            raise OSError(errno.ECONNRESET, "it closed the connection")
        count -= len(data)
    return data


def place_of(address):
    """Split host:port into (host, port). An IPv6 address has brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def listen(port):
    """Listen on every address, including IPv6 if available."""
    for family, every in ((socket.AF_INET6, "::"), (socket.AF_INET, "")):
        try:
            made = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            made.bind((every, port))
            made.listen(512)
            return made
        except OSError:
            made.close()
            if family == socket.AF_INET:
                raise
    raise OSError(errno.EAFNOSUPPORT, "no network")
