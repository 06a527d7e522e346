"""Names of models: which of them are for chat."""

from __future__ import annotations

import pytest

from antiphon.models.names import is_chat_model, plain_name


@pytest.mark.parametrize(
    ("model", "is_chat"),
    [
        ("gpt-5", True),
        ("llama-3.1-8b-instruct", True),
        ("scripted", True),
        ("embedded", True),
        ("imagenary", True),
        ("gpt-4o-audio-preview", True),
        ("my-embed-host/llama3", True),
        ("text-embedding-3-small", False),
        ("text-embeddings-large", False),
        ("nomic-embed-text", False),
        ("bge_embed_v2", False),
        ("openai/whisper-1", False),
        ("gpt-4o-mini-tts", False),
        ("gpt-4o-realtime-preview", False),
        ("dall-e-3", False),
        ("omni-moderation-latest", False),
        ("mistral-ocr-latest", False),
        ("gpt-3.5-turbo-instruct", False),
        ("openai/davinci-002", False),
        ("gpt-image-1", False),
        ("grok-2-image-1212", False),
        ("gemini-2.5-flash-image", False),
        ("Sora-2", False),
    ],
)
def test_models_that_are_not_for_chat_are_known_by_name(model: str, is_chat: bool) -> None:
    assert is_chat_model(model) is is_chat


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("Qwen2.5-Coder-1.5B-Instruct-Q4_K_M.gguf", "qwen2-5-coder-15b-instruct-q4-k-m"),
        ("openai/GPT-4o", "openai-gpt-4o"),
        ("модель:1", "модель-1"),
        ("--", ""),
    ],
)
def test_spellings_of_a_name_have_one_plain_form(name: str, plain: str) -> None:
    assert plain_name(name) == plain
