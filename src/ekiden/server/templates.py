"""URI templates (RFC 6570) read backwards: which variables made this URI?

Supported: `{var}`, `{+var}` (may contain slashes), `{/var}`, `{?a,b}` (a query, each part optional).
Values are percent-decoded. No value may escape the place its variable has: one of `{var}` contains
no slash even when decoded, and none has a `..` segment or a NUL, so that a handler which joins it
to a directory stays inside that directory.
"""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qsl, unquote

__all__ = ["UriTemplate", "is_uri"]

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_BODY: Final = re.compile(r"([+/?]?)([A-Za-z_][A-Za-z0-9_]*(?:,[A-Za-z_][A-Za-z0-9_]*)*)")


_URI: Final = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=\u00a1-\U0010ffff-]|%[0-9A-Fa-f]{2})*"
)


def is_uri(text: str) -> bool:
    """Whether `text` is made as RFC 3986 makes URIs: a scheme, and only the characters it allows.

    Letters beyond ASCII are let through as RFC 3987 has them, for clients do not encode them.
    """
    return _URI.fullmatch(text) is not None


class UriTemplate:
    """A template that can be matched against URIs; a malformed one is a `ValueError`."""

    def __init__(self, template: str) -> None:
        self.template = template
        self._operators: dict[str, str] = {}
        self.query: tuple[str, ...] = ()
        self._pattern = re.compile("".join(self._patterns(template)), re.DOTALL)

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables in the order they stand."""
        return (*self._operators, *self.query)

    def _patterns(self, template: str) -> Iterator[str]:
        position = 0
        for match in _EXPRESSION.finditer(template):
            yield self._literal(template[position : match.start()])
            yield self._expression(match[1], at_end=match.end() == len(template))
            position = match.end()
        yield self._literal(template[position:])

    def _literal(self, text: str) -> str:
        if "{" in text or "}" in text:
            raise ValueError(f"unbalanced braces in URI template {self.template!r}")
        return re.escape(text)

    def _expression(self, body: str, *, at_end: bool) -> str:
        parsed = _BODY.fullmatch(body)
        if parsed is None:
            raise ValueError(f"unsupported expression {{{body}}} in URI template {self.template!r}")
        operator, names = parsed[1], parsed[2].split(",")
        if len({*names, *self.variables}) != len(names) + len(self.variables):
            raise ValueError(f"a variable stands twice in URI template {self.template!r}")
        if operator == "?":
            if not at_end:
                raise ValueError(f"{{{body}}} must end the URI template {self.template!r}")
            self.query = tuple(names)
            return r"(?:\?(?P<_query>[^#]*))?"
        if len(names) > 1:
            raise ValueError(f"{{{body}}}: one variable per expression in URI template {self.template!r}")
        self._operators[names[0]] = operator
        allowed = r".+" if operator == "+" else r"[^/?#]+"
        return ("/" if operator == "/" else "") + f"(?P<{names[0]}>{allowed})"

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables' values if `uri` is one of this template's, else None."""
        found = self._pattern.fullmatch(uri)
        if found is None or not is_uri(uri):
            return None
        values = {name: unquote(found[name]) for name in self._operators}
        if not all(_stays_inside(value, self._operators[name]) for name, value in values.items()):
            return None
        if self.query:
            values.update(
                (key, value) for key, value in parse_qsl(found["_query"] or "") if key in self.query
            )
        return values


def _stays_inside(value: str, operator: str) -> bool:
    if "\x00" in value or (operator != "+" and "/" in value):
        return False
    return ".." not in value.replace("\\", "/").split("/")
