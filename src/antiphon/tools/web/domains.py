"""Is this page in one of the domains that the caller allows?

The host is read from the URL by the same parser that the request is sent with, so that no
spelling means one host to the filter and another to the connection. A domain allows itself and
all its subdomains; no domains allow all.
"""

from __future__ import annotations

from collections.abc import Sequence

from yarl import URL

__all__ = ["host_of", "is_allowed", "is_place", "is_web_address", "read_domains"]


def host_of(url: str) -> str:
    """Return the host of an address in lower case and ASCII; empty if it has none."""
    try:
        return (URL(url).raw_host or "").lower().rstrip(".")
    except ValueError:
        return ""


def is_web_address(url: str) -> bool:
    """Return whether this is an http or https address with a host, and without a password."""
    try:
        parsed = URL(url)
    except ValueError:
        return False
    is_web = parsed.scheme in ("http", "https") and bool(parsed.raw_host)
    return is_web and parsed.user is None and parsed.password is None


def is_place(text: str) -> bool:
    """Return whether this is `host:port`, as the settings name places."""
    try:
        parsed = URL(f"http://{text}")
    except ValueError:
        return False
    port = text.rpartition(":")[2]
    return bool(parsed.raw_host) and port.isdigit() and parsed.path in ("", "/")


def is_allowed(url: str, domains: Sequence[str]) -> bool:
    """Return whether the address is in one of these domains, as `read_domains` returns them."""
    if not domains:
        return True
    host = host_of(url)
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def read_domains(value: object) -> list[str] | None:
    """Return the domains of a filter in their plain form; None if they are no such list.

    They come without a scheme. Some callers write one, or a path: only the host counts.
    """
    if not isinstance(value, list):
        return None
    found: list[str] = []
    for name in value:
        if not isinstance(name, str):
            return None
        host = host_of(name if "://" in name else f"http://{name.strip()}")
        if not host:
            return None
        found.append(host.removeprefix("*."))
    return found
