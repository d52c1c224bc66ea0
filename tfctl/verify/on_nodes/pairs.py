"""Every pair of hosts exchanges bytes over plain TCP, on the ports of the proof: a ring that hangs names no pair."""

import errno
import queue
import socket
import threading
import time

SIZE = 1 << 20  # each way: more than any buffer on the way keeps
PATIENCE_S = 30.0  # units start within some seconds of each other
AT_ONCE = 32
STEP_S = 5.0


def lost(index, addresses, nonce, patience=PATIENCE_S):
    """[{"partner", "message"}]: the hosts with which nothing could be exchanged in time. Of a pair the first dials.

    The port is free again when this returns.
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
        missing = {partner: "it did not come" for partner in range(len(addresses)) if partner != index}
        while missing and time.monotonic() < ends:
            try:
                missing.pop(met.get(timeout=max(0.01, ends - time.monotonic())), None)
            except queue.Empty:
                break
        over.set()
        server.join()  # whoever waits for a connection keeps the port
    return [{"partner": partner, "message": reasons.get(partner, why)} for partner, why in sorted(missing.items())]


def dial_each(todo, index, addresses, nonce, met, reasons, over):
    """One attempt after another; whom it could not reach comes last again, since it may not have begun yet."""
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
    """Take a partner's bytes and give as many; it has met us when it says so. A stranger is left."""
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
            connection.recv(1)  # the end: who closes first keeps the port busy for a minute
        except OSError:
            return


def receive(connection, count):
    """So many bytes, of which the last few are returned. Raises OSError when they do not come."""
    data = b""
    while count:
        data = connection.recv(min(count, 65536))
        if not data:
            raise OSError(errno.ECONNRESET, "it hung up")
        count -= len(data)
    return data


def place_of(address):
    """(host, port) of host:port, where an IPv6 address has brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def listen(port):
    """On every address, IPv6 too where there is any."""
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
