"""`antiphon host`: the bridge for chat applications, in lines of JSON over stdin and stdout."""

from __future__ import annotations

import asyncio

import click

from antiphon.cli import options
from antiphon.cli.remote import keyed_server, own_server
from antiphon.host.bridge.process import run_bridge

__all__ = ["command"]


@click.command("host", epilog="The protocol:  docs/reference/bridge.md")
@options.base_url
@options.key_env
def command(base_url: str, key_env: str | None) -> None:
    """Answer a chat application that has started this process, such as an editor.

    It reads lines of JSON from stdin and writes lines of JSON to stdout, and ends when stdin is
    closed. The key is read from --key-env, otherwise from ANTIPHON_API_KEY, otherwise from
    OPENAI_API_KEY. The application may send another URL and another key.
    """
    if key_env is None:
        server = own_server(base_url)
    else:
        server = keyed_server(base_url, key_env, url_flag="--base-url", key_flag="--key-env")
    asyncio.run(run_bridge(server.base_url, server.key or ""))
