"""The contract of a store, the same for every kind, in facets.

- Everything has an owner, in every row and every query. A caller cannot distinguish a missing
  row from one of another owner.
- A turn stores its own items and points to its parent, so a conversation of a thousand turns
  takes a thousand times the space of one.
- Every fault inside is raised as `StoreUnavailable`, and then nothing was promised.
- A response is an event log. Batches of packed events are appended while it runs, each durable
  before it is shown. `finish` adds the last batch together with the final state.
- A turn has one writer: the store that began it or claimed it. Every append and finish checks
  that (the fence), so a process that was taken for dead cannot write after its successor.

One module per facet, and each database has a module of the same name. Those of files, containers
and skills are written once for both databases, in `store.sql`. `Store` joins them. A new facet
(reports) gets a module here, one in each store, and its tests in the common behaviour
suite. Callers should name the facet that they use. The methods are documented here; an
implementation adds only what is special about it.
"""

from antiphon.store.base.audit import Audit, AuditEntry, AuditQuery, AuditRecord
from antiphon.store.base.blobs import Blob, BlobGone, Blobs, BlobWriter
from antiphon.store.base.claims import Claim, ClaimRequest, Claims
from antiphon.store.base.containers import Container, ContainerFile, Containers
from antiphon.store.base.conversations import Conversation, Conversations, ItemPage
from antiphon.store.base.entries import Entry
from antiphon.store.base.files import Files, StoredFile, Upload, UploadPart
from antiphon.store.base.history import MAX_DEPTH, Admit, Histories, History, Size
from antiphon.store.base.keys import Access, KeyChange, KeyRecord, Keys
from antiphon.store.base.ledger import Ledger, Settlement
from antiphon.store.base.log import Batch, Log, Logs
from antiphon.store.base.native_states import NativeStates
from antiphon.store.base.notices import Notice, Notices
from antiphon.store.base.projects import Project, ProjectChange, Projects
from antiphon.store.base.rounds import KeptRound, RoundKind, Rounds
from antiphon.store.base.skills import Skill, Skills, SkillVersion
from antiphon.store.base.store import Store
from antiphon.store.base.tool_calls import Intent, ToolCalls
from antiphon.store.base.trees import TreeNode, Trees
from antiphon.store.base.turns import Turns
from antiphon.store.base.writers import Orphan, Writers

__all__ = [
    "MAX_DEPTH",
    "Access",
    "Admit",
    "Audit",
    "AuditEntry",
    "AuditQuery",
    "AuditRecord",
    "Batch",
    "Blob",
    "BlobGone",
    "BlobWriter",
    "Blobs",
    "Claim",
    "ClaimRequest",
    "Claims",
    "Container",
    "ContainerFile",
    "Containers",
    "Conversation",
    "Conversations",
    "Entry",
    "Files",
    "Histories",
    "History",
    "Intent",
    "ItemPage",
    "KeptRound",
    "KeyChange",
    "KeyRecord",
    "Keys",
    "Ledger",
    "Log",
    "Logs",
    "NativeStates",
    "Notice",
    "Notices",
    "Orphan",
    "Project",
    "ProjectChange",
    "Projects",
    "RoundKind",
    "Rounds",
    "Settlement",
    "Size",
    "Skill",
    "SkillVersion",
    "Skills",
    "Store",
    "StoredFile",
    "ToolCalls",
    "TreeNode",
    "Trees",
    "Turns",
    "Upload",
    "UploadPart",
    "Writers",
]
