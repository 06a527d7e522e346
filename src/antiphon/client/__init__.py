"""How do we ask? A client for any Responses server: ours, OpenAI's, vLLM's, Vercel's.

`AsyncClient` and `Client` are the same thing with and without an event loop. They speak the
protocol themselves, without an SDK. What can go wrong stands in `antiphon.client.errors`.
"""

from __future__ import annotations

from antiphon.client.client import AsyncClient
from antiphon.client.conversation import ConversationCache, Thread
from antiphon.client.conversation_api import AsyncConversations
from antiphon.client.errors import ClientError
from antiphon.client.file_api import AsyncFiles
from antiphon.client.function_tools import FunctionTool, function_tool
from antiphon.client.items import (
    CallOutputItem,
    CustomCallItem,
    FunctionCallItem,
    MessageItem,
    OtherItem,
    ReasoningItem,
    TypedItem,
    typed_item,
    typed_items,
)
from antiphon.client.resources import (
    Compaction,
    Conversation,
    Deleted,
    InputTokens,
    ItemPage,
    Model,
)
from antiphon.client.rest import Page
from antiphon.client.settings import Timeouts
from antiphon.client.stream import AsyncStream
from antiphon.client.sync import Client, Conversations, Files, Stream, VectorStores
from antiphon.client.tool_limits import ToolLimits
from antiphon.client.tool_loop import ToolFailed, ToolRun, run_tools, run_tools_sync
from antiphon.client.vector_store_api import AsyncVectorStores
from antiphon.protocol.files import FileObject
from antiphon.protocol.vector_stores import (
    AttachedFileObject,
    BatchObject,
    FoundText,
    VectorStoreObject,
)

__all__ = [
    "AsyncClient",
    "AsyncConversations",
    "AsyncFiles",
    "AsyncStream",
    "AsyncVectorStores",
    "AttachedFileObject",
    "BatchObject",
    "CallOutputItem",
    "Client",
    "ClientError",
    "Compaction",
    "Conversation",
    "ConversationCache",
    "Conversations",
    "CustomCallItem",
    "Deleted",
    "FileObject",
    "Files",
    "FoundText",
    "FunctionCallItem",
    "FunctionTool",
    "InputTokens",
    "ItemPage",
    "MessageItem",
    "Model",
    "OtherItem",
    "Page",
    "ReasoningItem",
    "Stream",
    "Thread",
    "Timeouts",
    "ToolFailed",
    "ToolLimits",
    "ToolRun",
    "TypedItem",
    "VectorStoreObject",
    "VectorStores",
    "function_tool",
    "run_tools",
    "run_tools_sync",
    "typed_item",
    "typed_items",
]
