"""How far are token estimates from the truth, before and after a server has counted?

For each kind of text, the estimate divided by the true count:

    known            for a model that has this encoding, where no tokenizer is installed
    before           for a model of an unknown tokenizer, before anything was learned
    after one count  the same after one server count of that very text
    another text     another text of that kind, after that one count

Truth is what real tokenizers say: o200k and cl100k (needs antiphon[tokens]), and with the weights
of a local model (needs antiphon[local]) its own.

    python bench/estimates.py [WEIGHTS.gguf]
"""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from antiphon.host.text_kinds import ENCODINGS, estimate_kinds
from antiphon.host.tokens import FOR_REPLY, PER_ITEM, TokenCounter
from antiphon.host.vocabulary import default_tokenizers

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.host.texts import TEXTS

__all__ = ["main"]

_MODEL = "a-model-nobody-knows"
_Count = Callable[[str], int]


def main(weights: str | None = None) -> None:
    """Print the table."""
    for name in ("o200k_base", "cl100k_base"):
        tokenizer = default_tokenizers().find(name)
        if tokenizer is None:
            print(f"no {name}: {default_tokenizers().problems[name]}")
        else:
            _print_table(name, tokenizer.count)
    if weights is not None:
        with _local_model(weights) as count:
            _print_table(Path(weights).stem, count)


def _print_table(name: str, count: _Count) -> None:
    print(f"\nestimate / true, {name}")
    print(f"{'':25} {'known':>7} {'before':>8} {'after one count':>16} {'another text':>13}")
    prices = ENCODINGS.get(name)
    for kind, (text, other) in TEXTS.items():
        counter = TokenCounter()
        true, other_true = count(text), count(other)
        before = counter.count_text(text, _MODEL) / true
        counter.learn(_MODEL, {"input": text}, true + FOR_REPLY + PER_ITEM)
        after = counter.count_text(text, _MODEL) / true
        new = counter.count_text(other, _MODEL) / other_true
        known = f"{sum(estimate_kinds(text, prices)) / true:.2f}" if prices else ""
        print(f"{kind:18} {true:6} {known:>7} {before:8.2f} {after:16.3f} {new:13.2f}")


@contextmanager
def _local_model(weights: str) -> Iterator[_Count]:
    """Run llama.cpp on a loopback port, and ask it for the tokens of a text."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = weights
    parameters.warmup = False
    parameters.fit_params = False
    parameters.n_ctx = 512
    parameters.port = 0
    server = xllamacpp.Server(parameters)
    address = urlsplit(server.listening_address).netloc

    def count(text: str) -> int:
        connection = http.client.HTTPConnection(address, timeout=60)
        connection.request("POST", "/tokenize", json.dumps({"content": text}))
        return len(json.loads(connection.getresponse().read())["tokens"])

    yield count


if __name__ == "__main__":
    main(*sys.argv[1:2])
