"""Network addresses as the configuration writes them: `host:port`, `[v6]:port`."""

from spur_core.errors import GrammarError

MAX_PORT = 65535


def split_address(text: str) -> tuple[str, int]:
    """(host without brackets, port) of `host:port` or `[v6]:port`; an empty host means every address.

    Port 0 asks for any free port.

    Raises:
        GrammarError: no port, a port out of range, or a bare IPv6 address.
    """
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        colon, port_text = rest[:1], rest[1:]
        if not bracket or colon != ":" or not _is_v6(host):
            raise _bad(text)
    else:
        host, colon, port_text = text.rpartition(":")
        if not colon or ":" in host or any(char.isspace() or char in "/[]" for char in host):
            raise _bad(text)
    if not (port_text.isascii() and port_text.isdigit()) or len(port_text) > 5 or int(port_text) > MAX_PORT:
        raise _bad(text)
    return host, int(port_text)


def join_address(host: str, port: int) -> str:
    """`host:port`; an IPv6 host gets its brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def with_port(host: str, port: int) -> str:
    """A controller of `controller.hosts`: a bare name or address gets `port`, one with a port keeps its own.

    Raises:
        GrammarError: neither a host nor an address.
    """
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if host.count(":") > 1 and not host.startswith("["):
        if not _is_v6(host):
            raise _bad(host)
        return join_address(host, port)
    if ":" in host:
        own_host, own_port = split_address(host)
        if not own_host:
            raise _bad(host)
        return join_address(own_host, own_port)
    if not host or any(char.isspace() or char in "/[]," for char in host):
        raise _bad(host)
    return join_address(host, port)


def _is_v6(host: str) -> bool:
    address, _, zone = host.partition("%")
    return (
        address.count(":") >= 2
        and all(char in "0123456789abcdefABCDEF:." for char in address)
        and (not zone or zone.isalnum())
    )


def _bad(text: str) -> GrammarError:
    return GrammarError(f"not an address: {text!r}; write HOST:PORT or [IPV6]:PORT")
