"""Extensions of the protocol (SEP-2133, SEP-3371), for those who write them and for those who enable them.

On a server, `Server(extensions=[...])` takes `Extension` objects: an identifier, settings, methods, result
types, notifications, interceptors and a lifespan. Their functions get an `ExtensionContext`, and may return
an `ExtensionResult`. On a client, `Client(extensions=[...])` takes `ClientExtension` objects.

`Skills` are an extension of a server, of which a client needs no more than `list_skills` and its like.
Tasks are one too; a server has it if a tool can become a task, and a client always.
"""

from ekiden.client.extensions.extension import ClientExtension, Interrupted
from ekiden.client.sessions.session import ClientRequest
from ekiden.client.skills.loaded import LoadedSkill
from ekiden.server.extensions.extension import Extension
from ekiden.server.extensions.methods import ExtensionContext
from ekiden.server.extensions.results import ExtensionResult
from ekiden.server.skills.skills import Skills
from ekiden.wire.extensions.skills import SkillEntry, SkillFile

__all__ = [
    "ClientExtension",
    "ClientRequest",
    "Extension",
    "ExtensionContext",
    "ExtensionResult",
    "Interrupted",
    "LoadedSkill",
    "SkillEntry",
    "SkillFile",
    "Skills",
]
