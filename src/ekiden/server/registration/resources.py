"""Resources, static and by template: their definition, and their contents."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import BaseModel

from ekiden.errors import RegistrationError
from ekiden.server.handlers import Handler
from ekiden.server.middleware import Run
from ekiden.server.questions import content
from ekiden.server.registration.catalog import CacheHint
from ekiden.server.registration.signatures import read_signature
from ekiden.server.registration.templates import Matches, UriTemplate, is_uri
from ekiden.server.registration.tools import described
from ekiden.wire.json import JsonObject

__all__ = ["Resource", "is_template"]


_EXPRESSION: Final = re.compile(r"\{[^{}]*\}")


def is_template(uri: str) -> bool:
    """Whether `uri` has variables."""
    return "{" in uri or "}" in uri


class Resource:
    """A resource, or a family of them where the URI is a template."""

    elsewhere: Run | None = None
    """Answers requests in place of the handler, for a resource of a server that is mounted."""
    completes: Run | None = None
    """Answers `completion/complete` in place of registered completions."""

    def __init__(
        self,
        uri: str,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        cache: CacheHint | None = None,
        rounds: Mapping[str, Any] | None = None,
        **about: Any,
    ) -> None:
        self.key = uri
        what = f"resource {uri!r}"
        if not is_uri(_EXPRESSION.sub("x", uri)):
            raise RegistrationError(
                f"{what} is not a URI: it needs a scheme, as in 'config://app', then characters of RFC 3986"
            )
        signature = read_signature(function, what=what)
        self.handler = Handler(function, signature.context, **(rounds or {}))
        self.scopes = self.handler.scopes
        self.parameters = signature.parameters
        self.template: Matches | None = self._template(uri, what)
        self._cache = (cache or CacheHint()).for_scopes(self.scopes).fields()
        self._mime_type = mime_type
        self.definition = described(
            {"uri" if self.template is None else "uriTemplate": uri},
            name=name or getattr(function, "__name__", uri),
            description=description or signature.summary,
            mime_type=mime_type,
            **about,
        )

    def _template(self, uri: str, what: str) -> UriTemplate | None:
        template = None
        if is_template(uri):
            try:
                template = UriTemplate(uri)
            except ValueError as error:
                raise RegistrationError(f"{what}: {error}") from None
        variables = () if template is None else template.variables
        if differing := set(self.parameters.names) ^ set(variables):
            raise RegistrationError(
                f"{what}: parameters and URI variables differ in {', '.join(sorted(differing))}"
            )
        query = () if template is None else template.query
        if needed := set(query) & set(self.parameters.required):
            raise RegistrationError(f"{what}: query variables need defaults: {', '.join(sorted(needed))}")
        return template

    def result(self, value: object, uri: str) -> JsonObject:
        """The handler's return value as a `ReadResourceResult`."""
        if isinstance(value, BaseModel) and type(value).__name__ == "ReadResourceResult":
            given = content.dump(value)
            chosen = value.model_fields_set
            is_chosen = "cache_scope" in chosen and not self.scopes
            return {
                **given,
                "ttlMs": given["ttlMs"] if "ttl_ms" in chosen else self._cache["ttlMs"],
                "cacheScope": given["cacheScope"] if is_chosen else self._cache["cacheScope"],
            }
        return {"contents": content.resource_contents(value, uri, self._mime_type), **self._cache}
