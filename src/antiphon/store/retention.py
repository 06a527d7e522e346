"""How long is what kept? Every table of every store is in one class.

| class | what | removed |
|---|---|---|
| `content` | what callers and models said | after `retention_days`, with its response |
| `conversation` | conversations and their items | when their owner deletes them |
| `prompt` | requests to upstreams, as sent | after `upstream_request_retention_days` |
| `log` | events as they were sent | after `log_retention_days`, or with the response |
| `file` | files, containers, skills, vector stores | when they expire or are deleted |
| `facts` | single charges | after `charge_retention_days` |
| `rollup` | sums of charges | never |
| `audit` | who changed what | never: each entry proves the one before |
| `brief` | what makes a retry or a crash harmless | within days |
| `settings` | projects, keys, budgets, limits | when they are deleted |
| `internal` | what a store needs to work | by the store itself |

A test compares this with the tables that there are, and runs the sweep over all of them.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

__all__ = ["CLASSES", "TABLES", "RetentionClass"]

RetentionClass = Literal[
    "content",
    "conversation",
    "prompt",
    "log",
    "file",
    "facts",
    "rollup",
    "audit",
    "brief",
    "settings",
    "internal",
]
CLASSES: Final[tuple[RetentionClass, ...]] = get_args(RetentionClass)

_MEMBERS: Final[dict[RetentionClass, tuple[str, ...]]] = {
    "content": ("responses", "items", "inputs"),
    "conversation": ("conversations", "conversation_items"),
    "prompt": ("rounds",),
    "log": ("log", "logs"),
    "file": (
        *("files", "blobs", "blob_pieces", "uploads", "upload_parts"),
        *("containers", "container_files", "skills", "skill_versions"),
        *("vector_stores", "vector_files", "vector_attributes", "vector_batches", "vector_jobs"),
        *("vector_chunks", "vector_vectors", "vector_gone", "vector_terms", "vector_lengths"),
        *("vector_blocks", "vector_waiting", "vector_loaded", "vector_dense", "vector_merges"),
    ),
    "facts": ("charges",),
    "rollup": ("usage_sums",),
    "audit": ("audit",),
    "brief": (
        *("jobs", "claims", "file_claims", "notices", "native_states"),
        *("tool_calls", "approvals"),
    ),
    "settings": ("projects", "keys", "budgets", "rate_limits", "secrets"),
    "internal": (
        "names",
        "ledger_marks",
        "erasure",
        "removal_counts",
        "nodes",
        "antiphon_migrations",
        "antiphon_additions",
    ),
}
TABLES: Final[dict[str, RetentionClass]] = {
    table: kind for kind, tables in _MEMBERS.items() for table in tables
}
"""The class of each table, under its name in SQLite and PostgreSQL."""
