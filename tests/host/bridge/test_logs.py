"""The log of the bridge: who gets its lines, and what is left when it ends."""

from __future__ import annotations

import logging

import pytest

from antiphon.host.bridge.logs import LogHandler
from antiphon.wires.host.messages import Log


def test_the_logger_is_as_before_when_the_bridge_has_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    sent: list[Log] = []
    handler = LogHandler("warning", sent.append, lambda: False, lambda text: text)
    log = logging.getLogger("antiphon.host")

    handler.install()
    log.debug("quiet")
    log.warning("loud")
    handler.remove()
    log.debug("after")

    assert [line.message for line in sent] == ["antiphon.host: loud"]
    assert caplog.messages == ["after"]


def test_bridges_of_one_process_end_in_any_order(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    handlers = [
        LogHandler(level, lambda line: None, lambda: False, lambda text: text)
        for level in ("warning", "error")
    ]
    for handler in handlers:
        handler.install()
    for handler in handlers:
        handler.remove()
    logging.getLogger("antiphon.host").debug("after")

    assert caplog.messages == ["after"]
