"""`llm antiphon`: which models the gateway has, and asking it again."""

from __future__ import annotations

import json
from dataclasses import asdict

import click
import llm

from llm_antiphon.listing import KnownModel, known_models, refresh
from llm_antiphon.server import base_url

__all__ = ["add_commands"]


def add_commands(cli: click.Group) -> None:
    """Add the group to the commands of llm."""

    @cli.group(name="antiphon")
    def antiphon() -> None:
        """Models of an antiphon gateway."""

    antiphon.command(name="refresh")(_refresh)
    antiphon.command(name="models")(_models)


def _refresh() -> None:
    """Ask the gateway for its models, and keep the list."""
    try:
        count = len(refresh())
    except llm.ModelError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{count} model{'' if count == 1 else 's'} from {base_url()}")


@click.option("as_json", "--json", is_flag=True, help="Print them as JSON.")
def _models(as_json: bool) -> None:
    """List the models of the gateway as they were last asked for."""
    models = known_models()
    if as_json:
        click.echo(json.dumps([asdict(model) for model in models], indent=2))
    elif models:
        click.echo("\n".join(map(_line, models)))
    else:
        raise click.ClickException(
            f"no models of {base_url()} are known; 'llm antiphon refresh' asks for them"
        )


def _line(model: KnownModel) -> str:
    """Return a model with what it can do, as far as the gateway states it."""
    abilities = {"tools": model.tools, "images": model.images, "reasoning": model.reasoning}
    known = [name for name, is_known in abilities.items() if is_known]
    if model.context_window:
        known.insert(0, f"{model.context_window} tokens")
    return f"antiphon/{model.id}" + (f" ({', '.join(known)})" if known else "")
