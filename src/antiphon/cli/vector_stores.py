"""`antiphon vector-stores`: files made searchable by a running server."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from antiphon.cli import options
from antiphon.cli.errors import CliError
from antiphon.cli.files import as_json, date_words, upload_paths
from antiphon.cli.progress import Bar, size_words
from antiphon.cli.remote import run_with_client
from antiphon.cli.terminal import columns, harmless, shorten
from antiphon.client import (
    AsyncClient,
    AttachedFileObject,
    BatchObject,
    FoundText,
    VectorStoreObject,
)
from antiphon.gateway.errors import BadSettings

__all__ = ["command"]

_MAX_BATCH: Final = 500
_MAX_TEXT: Final = 240
_MAX_ABOUT: Final = 100


@click.group(
    "vector-stores",
    epilog="Example:  antiphon vector-stores add vs_ap-1f0c docs/ && "
    'antiphon vector-stores search vs_ap-1f0c "refunds"',
)
def command() -> None:
    """Make files searchable, and search them, on a running server.

    Models search a vector store with the tool file_search. If the server needs a key, it is read
    from ANTIPHON_API_KEY, otherwise from OPENAI_API_KEY.
    """


@command.command("create", epilog="Example:  antiphon vector-stores create handbook docs/")
@click.argument("name")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option(
    "--expires",
    type=click.IntRange(1, 365),
    metavar="DAYS",
    help="Let it expire so many days after its last use.",
)
@as_json
@options.base_url
def create(
    name: str, paths: tuple[str, ...], expires: int | None, as_json: bool, base_url: str
) -> None:
    """Make a vector store, and print its id. Files and folders are added at once."""
    found = list(_find_files(paths)) if paths else []

    async def work(client: AsyncClient) -> VectorStoreObject:
        made = await client.vector_stores.create(
            name=options.check_text(name, "NAME"), expires_after_days=expires
        )
        if not as_json:
            click.echo(made.id)
        if found:
            await _add(client, made.id, found)
        return await client.vector_stores.retrieve(made.id)

    made = run_with_client(base_url, work)
    if as_json:
        click.echo(msgspec.json.encode(made))


@command.command("list", epilog="Example:  antiphon vector-stores list")
@as_json
@options.base_url
def list_(as_json: bool, base_url: str) -> None:
    """List the vector stores, newest first."""

    async def work(client: AsyncClient) -> list[VectorStoreObject]:
        return [store async for store in client.vector_stores.iterate()]

    stores = run_with_client(base_url, work)
    if as_json:
        click.echo(msgspec.json.encode(stores))
        return
    if not stores:
        click.echo(
            "There are no vector stores; `antiphon vector-stores create NAME` makes one.", err=True
        )
        return
    rows = [("ID", "STATUS", "FILES", "SIZE", "CREATED", "NAME")]
    rows += [
        (
            store.id,
            store.status,
            str(store.file_counts.total),
            size_words(store.usage_bytes),
            date_words(store.created_at),
            harmless(store.name or "", sys.stdout),
        )
        for store in stores
    ]
    click.echo("\n".join(columns(rows)))


@command.command("show", epilog="Example:  antiphon vector-stores show vs_ap-1f0c")
@click.argument("store_id", metavar="ID")
@as_json
@options.base_url
def show(store_id: str, as_json: bool, base_url: str) -> None:
    """Show a vector store: how many of its files are indexed."""
    store = run_with_client(base_url, lambda client: client.vector_stores.retrieve(store_id))
    if as_json:
        click.echo(msgspec.json.encode(store))
        return
    counts = store.file_counts
    rows = [
        ("id", store.id),
        ("name", harmless(store.name or "", sys.stdout)),
        ("status", store.status),
        ("files", f"{counts.total} ({_count_words(counts)})" if counts.total else "0"),
        ("size", size_words(store.usage_bytes)),
        ("created", date_words(store.created_at)),
        ("last used", date_words(store.last_active_at)),
        ("expires", date_words(store.expires_at)),
    ]
    click.echo("\n".join(columns(rows)))


@command.command("add", epilog="Example:  antiphon vector-stores add vs_ap-1f0c docs/ report.pdf")
@click.argument("store_id", metavar="ID")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--attribute",
    "attributes",
    metavar="KEY=VALUE",
    multiple=True,
    help="An attribute of all these files, for filters. May be repeated.",
)
@options.base_url
def add(store_id: str, paths: tuple[str, ...], attributes: tuple[str, ...], base_url: str) -> None:
    """Upload files and folders, attach them, and wait until they are indexed.

    Of folders, all files in them are added, except those whose names begin with a dot. Each file
    gets the attribute `path`, which filters can use.
    """
    found, given = list(_find_files(paths)), dict(map(_read_attribute, attributes))

    async def work(client: AsyncClient) -> None:
        await client.vector_stores.retrieve(store_id)  # before anything is uploaded
        await _add(client, store_id, found, given)

    run_with_client(base_url, work)


@command.command("files", epilog="Example:  antiphon vector-stores files vs_ap-1f0c")
@click.argument("store_id", metavar="ID")
@click.option(
    "--status",
    type=click.Choice(["in_progress", "completed", "failed", "cancelled"]),
    help="Only files with this status.",
)
@as_json
@options.base_url
def files(store_id: str, status: str | None, as_json: bool, base_url: str) -> None:
    """List the files of a vector store, newest first, and why some could not be indexed."""

    async def work(client: AsyncClient) -> list[AttachedFileObject]:
        await client.vector_stores.retrieve(store_id)
        found = client.vector_stores.iterate_files(store_id, status=status)
        return [file async for file in found]

    found = run_with_client(base_url, work)
    if as_json:
        click.echo(msgspec.json.encode(found))
        return
    if not found:
        click.echo("There are no such files in it.", err=True)
        return
    rows = [("ID", "STATUS", "SIZE", "ATTRIBUTES")]
    rows += [(file.id, file.status, size_words(file.usage_bytes), _about(file)) for file in found]
    click.echo("\n".join(columns(rows)))


@command.command(
    "search", epilog='Example:  antiphon vector-stores search vs_ap-1f0c "How are refunds paid?"'
)
@click.argument("store_id", metavar="ID")
@click.argument("query")
@click.option(
    "--limit", type=click.IntRange(1, 50), default=5, show_default=True, help="How many files."
)
@click.option(
    "--filter",
    "filters",
    metavar="JSON",
    help='A filter of attributes, as in {"type": "eq", "key": "lang", "value": "en"}.',
)
@as_json
@options.base_url
def search(
    store_id: str, query: str, limit: int, filters: str | None, as_json: bool, base_url: str
) -> None:
    """Print the files that answer a question best, and the texts that do."""
    chosen = _read_filter(filters)
    asked = options.check_text(query, "QUERY")
    found: list[FoundText] = run_with_client(
        base_url,
        lambda client: client.vector_stores.search(
            store_id, asked, filters=chosen, max_num_results=limit
        ),
    )
    if as_json:
        click.echo(msgspec.json.encode(found))
        return
    if not found:
        click.echo("Nothing was found.", err=True)
    for one in found:
        place = (one.attributes or {}).get("path") or one.filename
        click.echo(f"{one.score:.2f}  {harmless(str(place), sys.stdout)}  {one.file_id}")
        for part in one.content:
            click.echo(f"      {harmless(shorten(part.text, _MAX_TEXT), sys.stdout)}")


@command.command("delete", epilog="Example:  antiphon vector-stores delete vs_ap-1f0c")
@click.argument("store_id", metavar="ID")
@click.option("--with-files", is_flag=True, help="Delete the files that are in it, too.")
@options.base_url
def delete(store_id: str, with_files: bool, base_url: str) -> None:
    """Delete a vector store for good. Its files stay, unless --with-files is given."""

    async def work(client: AsyncClient) -> int:
        names: list[str] = []
        if with_files:
            await client.vector_stores.retrieve(store_id)
            names = [file.id async for file in client.vector_stores.iterate_files(store_id)]
        await client.vector_stores.delete(store_id)
        for name in names:
            await client.files.delete(name)
        return len(names)

    count = run_with_client(base_url, work)
    extra = f" with {count} files" if with_files else ""
    click.echo(f"{store_id} is deleted{extra}.", err=True)


async def _add(
    client: AsyncClient,
    store_id: str,
    found: Sequence[tuple[Path, str]],
    attributes: dict[str, Any] | None = None,
) -> None:
    """Upload, attach and wait; raise CliError if some files could not be indexed."""
    made = await upload_paths(client, [path for path, _ in found], "assistants")
    entries = [
        {"file_id": file.id, "attributes": {**(attributes or {}), "path": place[-512:]}}
        for file, (_, place) in zip(made, found, strict=True)
    ]
    names = {file.id: place for file, (_, place) in zip(made, found, strict=True)}
    failed: list[AttachedFileObject] = []
    done = 0
    with Bar() as bar:
        for start in range(0, len(entries), _MAX_BATCH):
            part = entries[start : start + _MAX_BATCH]
            batch = await client.vector_stores.attach(store_id, part)

            def show(state: BatchObject, start: int = start) -> None:
                counts = state.file_counts
                bar.show("indexing", start + counts.total - counts.in_progress, len(entries))

            batch = await client.vector_stores.wait(store_id, batch.id, progress=show)
            done += batch.file_counts.completed
            failed += [
                file
                async for file in client.vector_stores.iterate_files(
                    store_id, status="failed", batch_id=batch.id
                )
            ]
    for file in failed:
        reason = file.last_error.message if file.last_error else "no reason given"
        place = harmless(names.get(file.id, file.id), sys.stderr)
        click.echo(f"{place}: not indexed: {harmless(reason, sys.stderr)}", err=True)
    _report(done, len(entries), bool(failed))


def _report(done: int, total: int, has_failed: bool) -> None:
    words = f"{done} of {total} files are indexed"
    if has_failed or done < total:
        raise CliError(words)
    click.echo(f"{words}.", err=True)


def _find_files(paths: Sequence[str]) -> Iterator[tuple[Path, str]]:
    """Yield the files that are meant, each with the path that is shown for it."""
    found = False
    for given in paths:
        path = Path(given)
        if path.is_dir():
            for one in _walk(path):
                found = True
                yield one, one.relative_to(path.parent if path.name else path).as_posix()
        elif path.is_file():
            found = True
            yield path, path.name
        else:
            raise BadSettings(f"there is no file or folder {given}")
    if not found:
        raise BadSettings(f"there are no files in {', '.join(paths)}")


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(root, name)
            if not name.startswith(".") and path.is_file():
                yield path


def _read_attribute(text: str) -> tuple[str, str | float | bool]:
    """Return an attribute. What looks like a number or a truth value is one."""
    key, mark, value = text.partition("=")
    if not mark or not key:
        raise BadSettings(f"--attribute must be KEY=VALUE, not {text!r}")
    if value in ("true", "false"):
        return key, value == "true"
    try:
        return key, float(value)
    except ValueError:
        return key, value


def _read_filter(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise BadSettings("--filter must be a JSON object")
    return found


def _count_words(counts: Any) -> str:
    """Return which files have which status, without what is none."""
    names = ("completed", "in_progress", "failed", "cancelled")
    found = [(getattr(counts, name), name.replace("_", " ")) for name in names]
    return ", ".join(f"{count} {name}" for count, name in found if count)


def _about(file: AttachedFileObject) -> str:
    """Return the attributes of a file, and why it was not indexed if it was not."""
    facts = [f"{key}={value}" for key, value in (file.attributes or {}).items()]
    if file.last_error is not None:
        facts.append(file.last_error.message)
    return shorten(harmless(", ".join(facts), sys.stdout), _MAX_ABOUT)
