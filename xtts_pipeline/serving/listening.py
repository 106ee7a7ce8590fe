"""Open the sockets of a server. Imports no TensorFlow: a port in use is noticed before it starts."""

import socket

from xtts_pipeline.errors import OutputError

BACKLOG = 512


def listen(host: str, port: int, port_option: str = "--port") -> socket.socket:
    """Return a socket that waits for connections. Raises OutputError if the host or port cannot be used."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:
        # Names such as `a..b` fail before they are looked up. Python adds the address to the system's reason.
        reason = "no name of a host" if isinstance(error, UnicodeError) else str(error.strerror).partition(" (while")[0]
        raise OutputError(f"{host}:{port}: cannot listen ({reason}); choose another --host or {port_option}") from None
