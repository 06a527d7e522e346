"""`antiphon files`: what a running server keeps of your files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

import click
import msgspec

from antiphon.cli import options
from antiphon.cli.progress import Bar, is_shown, size_words
from antiphon.cli.remote import run_with_client
from antiphon.cli.terminal import columns, harmless
from antiphon.client import AsyncClient, FileObject
from antiphon.gateway.errors import BadSettings
from antiphon.protocol.files import PURPOSES

__all__ = ["as_json", "command", "date_words", "upload_paths"]

_DAY: Final = 86_400


@click.group("files", epilog="Example:  antiphon files upload report.pdf notes.md")
def command() -> None:
    """Upload, list and delete the files that a running server keeps.

    Models read them by their id (input_file), and vector stores make them searchable. If the
    server needs a key, it is read from ANTIPHON_API_KEY, otherwise from OPENAI_API_KEY.
    """


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@command.command("upload", epilog="Example:  antiphon files upload report.pdf --expires 7")
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--purpose",
    type=click.Choice(PURPOSES),
    default="user_data",
    show_default=True,
    help="What the files are for.",
)
@click.option(
    "--expires", type=click.IntRange(1, 30), metavar="DAYS", help="Delete them after so many days."
)
@as_json
@options.base_url
def upload(
    paths: tuple[str, ...], purpose: str, expires: int | None, as_json: bool, base_url: str
) -> None:
    """Upload files; print the id of each, and its name.

    A large file is sent in parts, so a lost connection costs one part.
    """
    files = [Path(path) for path in paths]
    _check_files(files)
    seconds = None if expires is None else expires * _DAY

    async def work(client: AsyncClient) -> list[FileObject]:
        return await upload_paths(client, files, purpose, seconds)

    made = run_with_client(base_url, work)
    if as_json:
        _print_json(made)
        return
    for file in made:
        click.echo(f"{file.id}  {harmless(file.filename, sys.stdout)}")


@command.command("list", epilog="Example:  antiphon files list --purpose assistants")
@click.option("--purpose", type=click.Choice(PURPOSES), help="Only files with this purpose.")
@as_json
@options.base_url
def list_(purpose: str | None, as_json: bool, base_url: str) -> None:
    """List the files, newest first."""

    async def work(client: AsyncClient) -> list[FileObject]:
        return [file async for file in client.files.iterate(purpose=purpose)]

    files = run_with_client(base_url, work)
    if as_json:
        _print_json(files)
        return
    if not files:
        click.echo("There are no files; `antiphon files upload FILE` stores one.", err=True)
        return
    rows = [("ID", "SIZE", "CREATED", "EXPIRES", "NAME")]
    rows += [
        (
            file.id,
            size_words(file.bytes),
            date_words(file.created_at),
            date_words(file.expires_at),
            harmless(file.filename, sys.stdout),
        )
        for file in files
    ]
    click.echo("\n".join(columns(rows)))


@command.command("show", epilog="Example:  antiphon files show file-ap-1f0c")
@click.argument("file_id", metavar="ID")
@as_json
@options.base_url
def show(file_id: str, as_json: bool, base_url: str) -> None:
    """Show what is known of a file."""
    file = run_with_client(base_url, lambda client: client.files.retrieve(file_id))
    if as_json:
        click.echo(msgspec.json.encode(file))
        return
    rows = [
        ("id", file.id),
        ("name", harmless(file.filename, sys.stdout)),
        ("size", f"{size_words(file.bytes)} ({file.bytes} bytes)"),
        ("purpose", file.purpose),
        ("created", date_words(file.created_at)),
        ("expires", date_words(file.expires_at)),
    ]
    click.echo("\n".join(columns(rows)))


@command.command("content", epilog="Example:  antiphon files content file-ap-1f0c -o report.pdf")
@click.argument("file_id", metavar="ID")
@click.option("--output", "-o", metavar="FILE", help="Write it there.  [default: standard output]")
@options.base_url
def content(file_id: str, output: str | None, base_url: str) -> None:
    """Print the content of a file, or write it to another one.

    A file that exists already is not replaced.
    """
    if output is None or output == "-":
        if sys.stdout.isatty():
            raise BadSettings("the content may not be text; pass --output FILE, or pipe it")
        _download(base_url, file_id, sys.stdout.buffer)
        return
    with _new_file(Path(output)) as file:
        _download(base_url, file_id, file)


@command.command("delete", epilog="Example:  antiphon files delete file-ap-1f0c")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@options.base_url
def delete(ids: tuple[str, ...], base_url: str) -> None:
    """Delete files for good, also from vector stores."""

    async def work(client: AsyncClient) -> None:
        for name in ids:
            await client.files.delete(name)
            click.echo(f"{name} is deleted.", err=True)

    run_with_client(base_url, work)


async def upload_paths(
    client: AsyncClient, paths: Sequence[Path], purpose: str, expires_after: int | None = None
) -> list[FileObject]:
    """Upload one file after the other, with a bar for all of them together."""
    sizes = [path.stat().st_size for path in paths]
    total, before, made = sum(sizes), 0, []
    label = paths[0].name if len(paths) == 1 else f"uploading {len(paths)} files"
    with Bar() as bar:
        bar.show(label, 0, total)
        for path, size in zip(paths, sizes, strict=True):

            def show(done: int, _: int, start: int = before) -> None:
                bar.show(label, start + done, total)

            file = await client.files.upload(
                path, purpose=purpose, expires_after=expires_after, progress=show
            )
            made.append(file)
            before += size
            bar.show(label, before, total)
            if not is_shown():
                click.echo(f"{path}: uploaded, {size_words(size)}", err=True)
    return made


def date_words(seconds: int | None) -> str:
    """Return a time as a date; a dash for none."""
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a file that does not exist; remove it again if its content does not arrive."""
    try:
        with path.open("xb") as file:
            try:
                yield file
            except BaseException:
                path.unlink(missing_ok=True)
                raise
    except FileExistsError:
        raise BadSettings(f"--output: {path} exists already") from None
    except OSError as error:
        raise BadSettings(f"--output: {path} cannot be written: {error.strerror}") from None


def _download(base_url: str, file_id: str, into: BinaryIO) -> None:
    async def work(client: AsyncClient) -> None:
        with Bar() as bar:
            await client.files.download(
                file_id, into, progress=lambda done, total: bar.show(file_id, done, total)
            )

    run_with_client(base_url, work)


def _check_files(paths: Sequence[Path]) -> None:
    for path in paths:
        if path.is_dir():
            raise BadSettings(
                f"{path} is a folder; name its files, or use `antiphon vector-stores add`"
            )
        if not path.is_file():
            raise BadSettings(f"there is no file {path}")


def _print_json(files: Sequence[FileObject]) -> None:
    click.echo(msgspec.json.encode(files))
