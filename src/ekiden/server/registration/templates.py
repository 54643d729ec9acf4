"""URI templates (RFC 6570) read backwards: which variables made this URI?

Supported: `{var}`, `{+var}` (may contain slashes), `{/var}`, `{?a,b}` (a query, each part optional).
Values are percent-decoded. No value may reach beyond the place of its variable: a `{var}` contains
no slash even when decoded, a `{+var}` begins neither with one nor with a drive (`C:\\`), and none has a `..`
segment or a NUL, so that a handler which joins it to a directory stays inside that directory. A value of a
query may begin with a slash: it is not a part of a path.
"""

import re
from typing import Final, Protocol
from urllib.parse import parse_qsl, unquote

__all__ = ["LONGEST_READ", "Matches", "UriTemplate", "is_uri"]

_EXPRESSION: Final = re.compile(r"\{([^{}]*)\}")
_BODY: Final = re.compile(r"([+/?]?)([A-Za-z_][A-Za-z0-9_]*(?:,[A-Za-z_][A-Za-z0-9_]*)*)")


_SEGMENT: Final = re.compile(r"[^/?#]+")
# Two patterns, and not one of "a character or an escape": that would take a hundred times as long.
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%\u00a1-\U0010ffff-]*")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_DRIVE: Final = re.compile(r"[A-Za-z]:[/\\]")
LONGEST_READ: Final = 64 * 1024
"""Characters of a URI that can be read. A client of 2026 repeats it in a header, where no more would fit."""


def is_uri(text: str) -> bool:
    """Whether `text` is a URI of RFC 3986: a scheme, and only the characters that it allows.

    Letters beyond ASCII are allowed, as in RFC 3987, because clients do not encode them.
    """
    return _URI.fullmatch(text) is not None and _BAD_ESCAPE.search(text) is None


class Matches(Protocol):
    """Something that URIs can be matched against."""

    def match(self, uri: str) -> dict[str, str] | None:
        """The values of its variables if `uri` matches, else None."""
        ...


class UriTemplate:
    """A template that can be matched against URIs; a malformed one is a `ValueError`."""

    def __init__(self, template: str) -> None:
        self.template = template
        self.query: tuple[str, ...] = ()
        self._operators: dict[str, str] = {}
        self._parts: list[tuple[str, str | None]] = []
        """Literal text, and the variable that follows it (None at the end)."""
        self._split(template)

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables in the order they stand."""
        return (*self._operators, *self.query)

    def _split(self, template: str) -> None:
        position, literal = 0, ""
        for match in _EXPRESSION.finditer(template):
            literal += self._literal(template[position : match.start()])
            position = match.end()
            operator, names = self._expression(match[1])
            if operator == "?":
                if position != len(template):
                    raise ValueError(f"{{{match[1]}}} must end the URI template {template!r}")
                self.query = names
                break
            self._parts.append((literal + ("/" if operator == "/" else ""), names[0]))
            self._operators[names[0]] = operator
            literal = ""
        self._parts.append((literal + self._literal(template[position:]), None))
        if any(not text for text, name in self._parts[1:] if name is not None):
            raise ValueError(f"two variables stand side by side in URI template {template!r}")

    def _literal(self, text: str) -> str:
        if "{" in text or "}" in text:
            raise ValueError(f"unbalanced braces in URI template {self.template!r}")
        return text

    def _expression(self, body: str) -> tuple[str, tuple[str, ...]]:
        parsed = _BODY.fullmatch(body)
        if parsed is None:
            raise ValueError(f"unsupported expression {{{body}}} in URI template {self.template!r}")
        operator, names = parsed[1], tuple(parsed[2].split(","))
        if len({*names, *self.variables}) != len(names) + len(self.variables):
            raise ValueError(f"a variable stands twice in URI template {self.template!r}")
        if operator != "?" and len(names) > 1:
            raise ValueError(f"{{{body}}}: one variable per expression in URI template {self.template!r}")
        return operator, names

    def match(self, uri: str) -> dict[str, str] | None:
        """The variables' values if `uri` is one of this template's, else None."""
        if len(uri) > LONGEST_READ or not uri.startswith(self._parts[0][0]) or not is_uri(uri):
            return None
        path, _, query = uri.partition("?") if self.query else (uri, "", "")
        raw = self._cut(path)
        if raw is None or "#" in query:
            return None
        values = {name: unquote(raw[name]) for name in self._operators}
        values.update((key, value) for key, value in parse_qsl(query) if key in self.query)
        return values if all(self._is_tame(name, value) for name, value in values.items()) else None

    def _cut(self, path: str) -> dict[str, str] | None:
        """The variables' raw values, cut from the right, so that the first ones are the longest.

        Each literal is looked for once: a hostile URI costs no more than its length.
        """
        raw: dict[str, str] = {}
        ending, _ = self._parts[-1]
        if not path.endswith(ending):
            return None
        rest = path[: len(path) - len(ending)]
        for position, (literal, name) in reversed(list(enumerate(self._parts[:-1]))):
            start = 0 if position == 0 else rest.rfind(literal)
            if name is None or start < 0 or not rest.startswith(literal, start):
                return None
            value = rest[start + len(literal) :]
            if not value or (self._operators[name] != "+" and not _SEGMENT.fullmatch(value)):
                return None
            raw[name] = value
            rest = rest[:start]
        return raw if self._operators or rest == "" else None

    def _is_tame(self, name: str, value: str) -> bool:
        """Whether a value does not reach beyond the place of its variable."""
        if "\x00" in value or ".." in value.replace("\\", "/").split("/"):
            return False
        if name in self.query:
            return True
        if value.startswith(("/", "\\")) or _DRIVE.match(value):
            return False  # On some systems this is an absolute path.
        return self._operators[name] == "+" or "/" not in value
