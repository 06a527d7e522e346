"""`antiphon config`: make a configuration out of that of another gateway."""

from __future__ import annotations

from pathlib import Path

import click

from antiphon.gateway.errors import BadSettings, how_to_install
from antiphon.gateway.litellm import import_litellm

__all__ = ["command"]


@click.group("config", epilog="Example:  antiphon config import litellm.yaml > antiphon.toml")
def command() -> None:
    """Make a configuration."""


@command.command("import", epilog="Example:  antiphon config import litellm.yaml > antiphon.toml")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def import_(file: Path) -> None:
    """Print the settings that a configuration of the LiteLLM proxy stands for.

    What it could not express is listed on stderr. Keys are never copied: they stay in the
    environment variables that the file names.
    """
    found = import_litellm(_read(file))
    click.echo(found.toml, nl=False)
    for what in found.unmapped:
        click.echo(f"not mapped: {what}", err=True)


def _read(file: Path) -> object:
    try:
        import yaml
    except ImportError:
        raise BadSettings(f"YAML cannot be read without {how_to_install('litellm')}") from None
    try:
        return yaml.safe_load(file.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadSettings(f"{file} is not YAML: {error}") from None
