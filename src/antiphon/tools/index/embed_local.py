"""Embeddings in this process: MiniLM with 8-bit weights, one window after the other.

The extra `embed` brings the runtime; the weights are fetched once, with their digests checked, as
those of the embedded model (`backends.weights`). A text longer than a window of 256 tokens is cut
into windows, and its vector is the mean of theirs.

Texts to be stored are embedded in a thread of their own with a low priority, one window at a time
(larger batches are slower on a CPU), so that streams do not notice; the runtime and the tokenizer
release the interpreter while they work. Queries have another thread: they never wait for texts.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from antiphon.backends.weights import (
    MINILM,
    MINILM_TOKENIZER,
    WeightsUnavailable,
    ensure_weights,
)
from antiphon.tools.index.embed import EmbeddingFailed, Pay, pack_vector

__all__ = ["LocalEmbedder", "can_embed", "fetch_model"]

_WINDOW: Final = 256
_MAX_WINDOWS: Final = 32  # a chunk of 4,096 tokens, if a token of the model is half of ours
_LOW_PRIORITY: Final = 10
_MODULES: Final = ("numpy", "onnxruntime", "tokenizers")


def can_embed() -> bool:
    """Return whether the extra `embed` is installed."""
    return all(importlib.util.find_spec(name) is not None for name in _MODULES)


def fetch_model() -> tuple[Path, Path]:
    """Return the paths of weights and tokenizer; fetch them first if need be. May take long."""
    return ensure_weights(weights=MINILM), ensure_weights(weights=MINILM_TOKENIZER)


class LocalEmbedder:
    """Makes vectors with 384 numbers. The model is loaded with the first text."""

    kind: Final = "minilm-int8"
    batch: Final = 4

    def __init__(self, fetch: Callable[[], tuple[Path, Path]] = fetch_model) -> None:
        self._fetch = fetch
        self._model: _Model | None = None
        self._loading = threading.Lock()
        self._slow = ThreadPoolExecutor(1, "embed", initializer=_lower_priority)
        self._quick = ThreadPoolExecutor(1, "embed-query")
        self.windows = 0
        """How many windows of texts were embedded."""

    def pay_with(self, pay: Pay) -> None:
        """Charge nothing: no upstream is asked."""

    async def embed(self, owner: str, texts: Sequence[str]) -> list[bytes]:
        """Return the vectors of texts."""
        loop = asyncio.get_running_loop()
        return [await loop.run_in_executor(self._slow, self._embed, text) for text in texts]

    async def embed_query(self, owner: str, text: str) -> bytes:
        """Return the vector of a query: of its first window."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._quick, self._embed_query, text)

    async def close(self) -> None:
        """End the threads after the windows that they work on."""
        for threads in (self._slow, self._quick):
            threads.shutdown(wait=False, cancel_futures=True)

    def _embed(self, text: str) -> bytes:
        model = self._load()
        windows = model.windows(text)
        self.windows += len(windows)
        return model.mean(windows)

    def _embed_query(self, text: str) -> bytes:
        model = self._load()
        return model.mean(model.windows(text)[:1])

    def _load(self) -> _Model:
        with self._loading:
            if self._model is None:
                try:
                    self._model = _Model(*self._fetch())
                except WeightsUnavailable as error:
                    raise EmbeddingFailed(error.message, may_pass=True) from None
            return self._model


class _Model:
    """The model itself. Any thread may use it."""

    def __init__(self, weights: Path, tokenizer: Path) -> None:
        import numpy
        import onnxruntime
        from tokenizers import Tokenizer

        self._numpy = numpy
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session: Any = onnxruntime.InferenceSession(
            str(weights), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {one.name for one in self._session.get_inputs()}
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_WINDOW)

    def windows(self, text: str) -> list[list[int]]:
        """Return the windows of a text as numbers of tokens, at least one."""
        first = self._tokenizer.encode(text)
        return [first.ids, *(more.ids for more in first.overflowing)][:_MAX_WINDOWS]

    def mean(self, windows: Sequence[list[int]]) -> bytes:
        """Return the mean of the vectors of windows, weighted by their lengths."""
        total = sum(self._run(window) * len(window) for window in windows)
        return pack_vector(total.tolist())

    def _run(self, ids: list[int]) -> Any:
        """Return the vector of one window: the mean over its tokens, of length 1."""
        numpy = self._numpy
        tokens = numpy.array([ids], dtype=numpy.int64)
        given = {
            "input_ids": tokens,
            "attention_mask": numpy.ones_like(tokens),
            "token_type_ids": numpy.zeros_like(tokens),
        }
        (states, *_) = self._session.run(None, {n: given[n] for n in self._inputs})
        vector = states[0].mean(axis=0)
        return vector / max(float(numpy.linalg.norm(vector)), 1e-12)


def _lower_priority() -> None:
    """Give way to the event loop. On Linux the priority belongs to the thread alone."""
    if hasattr(os, "setpriority") and os.uname().sysname == "Linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _LOW_PRIORITY)
