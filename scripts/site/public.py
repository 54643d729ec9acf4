"""Which public names there are, and on which page of the reference each is.

A public name that is on no page, or a page that names what is not public, stops the build.
"""

from typing import Final, NamedTuple

import griffe

__all__ = ["PAGES", "Page", "PublicName", "load", "public_names"]


class Page(NamedTuple):
    """A page of the reference."""

    title: str
    about: str
    names: tuple[str, ...]


PAGES: Final = {
    "server": Page(
        "Server",
        "What you register handlers with, and how it is served.",
        (
            "Server",
            "ServerCard",
            "CacheHint",
            "Store",
            "Recording",
            "stores.open_store",
            "Image",
            "Audio",
            "File",
        ),
    ),
    "context": Page(
        "Context",
        "What a handler gets as `ctx`: questions, steps, progress, log, tasks.",
        (
            "Context",
            "Accepted",
            "Declined",
            "Cancelled",
            "Answer",
            "Retry",
            "InputRequired",
            "Task",
            "CancelledTask",
        ),
    ),
    "client": Page(
        "Client",
        "Calls tools, answers what they ask, follows their tasks.",
        (
            "Client",
            "ClientLimits",
            "PendingCall",
            "LeftOut",
            "TaskHandle",
            "TaskSnapshot",
            "extensions.ClientExtension",
            "extensions.ClientRequest",
            "extensions.ExtensionResult",
            "extensions.Interrupted",
            "extensions.LoadedSkill",
        ),
    ),
    "people": Page(
        "People",
        "Pages on which people answer what no client can ask, and how they are told.",
        ("Pages", "Person", "Notice", "WebhookNotifier", "MailNotifier"),
    ),
    "middleware": Page(
        "Messages and middleware",
        "What a middleware sees and may return, routes, rate limits.",
        (
            "Request",
            "Middleware",
            "CallNext",
            "Outcome",
            "Complete",
            "Interim",
            "Failed",
            "Outgoing",
            "OutgoingMiddleware",
            "SendOn",
            "HttpRequest",
            "HttpResponse",
            "Rate",
            "RateLimit",
        ),
    ),
    "authorization": Page(
        "Authorization",
        "Who may send requests, and who a request is from.",
        (
            "Auth",
            "Principal",
            "TokenVerifier",
            "VerifiedToken",
            "JWTVerifier",
            "IntrospectionVerifier",
            "StaticTokens",
        ),
    ),
    "limits-of-a-server": Page(
        "Limits, as objects",
        "Each limit with its default; [the page about limits](../limits.md) has the reasons.",
        ("HttpLimits", "RoundLimits", "SessionLimits", "TaskLimits"),
    ),
    "extensions": Page(
        "Extensions and skills",
        "How the protocol is extended on a server.",
        (
            "extensions.Extension",
            "extensions.ExtensionContext",
            "extensions.Skills",
            "extensions.SkillEntry",
            "extensions.SkillFile",
        ),
    ),
    "testing": Page(
        "Testing",
        "For the tests of your tools, and for stores of your own. Everything is in `ekiden.testing`.",
        (
            "testing.ScriptedClient",
            "testing.Round",
            "testing.Progress",
            "testing.LogMessage",
            "testing.DECLINE",
            "testing.CANCEL",
            "testing.Replicas",
            "testing.check_replay",
            "testing.crash_at",
            "testing.CRASH_POINTS",
            "testing.LedgerContract",
            "testing.TaskStoreContract",
            "testing.SessionStoreContract",
            "testing.BusContract",
            "testing.PeopleStoreContract",
            "testing.StoryStoreContract",
        ),
    ),
    "inside": Page(
        "Inside other servers",
        "Durable tools in FastMCP and in the official SDK's server, and the engine below both.",
        (
            "integrations.fastmcp.Durable",
            "integrations.mcp.Durable",
            "engine.Engine",
            "engine.HostStream",
            "engine.Stream",
            "engine.AskingStream",
            "engine.Carrier",
            "engine.Matcher",
            "engine.ResumeMode",
            "engine.Kind",
            "engine.TokenSealer",
            "engine.Keys",
            "engine.ask",
            "engine.answers_by_hand",
            "engine.has_lasting_keys",
            "engine.Lasting",
            "engine.lasting",
            "engine.principal_of",
        ),
    ),
}

MODULES: Final = ("", "testing", "engine", "extensions", "stores", "integrations.fastmcp", "integrations.mcp")
"""Modules whose `__all__` is public, below `ekiden`. The errors have a page of their own."""


class PublicName(NamedTuple):
    """A name that users import."""

    path: str
    """Below `ekiden`: `Server`, `testing.Replicas`."""
    what: griffe.Object

    @property
    def imported(self) -> str:
        """As it is imported: `ekiden.testing.Replicas`."""
        return f"ekiden.{self.path}"


def load() -> griffe.Module:
    """The source of ekiden, read and not run."""
    loader = griffe.GriffeLoader(search_paths=["src"])
    package = loader.load("ekiden")
    loader.resolve_aliases(external=False)
    assert isinstance(package, griffe.Module)
    return package


def public_names(package: griffe.Module) -> dict[str, PublicName]:
    """All of them by path; one that has two homes, as errors in `testing` have, is told of at the first."""
    found: dict[str, PublicName] = {}
    homes: set[str] = set()
    for module in MODULES:
        holder = package[module] if module else package
        for name in holder.exports or ():
            what = holder[str(name)]
            target = what.final_target if what.is_alias else what
            if target.canonical_path in homes or target.canonical_path.startswith("ekiden.errors."):
                continue
            homes.add(target.canonical_path)
            path = f"{module}.{name}" if module else str(name)
            found[path] = PublicName(path, target)
    return found
