"""The frontmatter of a `SKILL.md`: the YAML between the two lines of dashes that it begins with.

It becomes JSON, and both sides compare it field by field (SEP-2640), so it must mean the same everywhere:
the core schema of YAML 1.2 is read, in which `no` is a text and a date is one, too. What the other side may
send is bounded: no aliases, which could make a small text huge.
"""

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ekiden.errors import UsageError
from ekiden.signals import FrontmatterError
from ekiden.wire.json import ENCODE_ERRORS, JsonObject, decode, encode

if TYPE_CHECKING:  # It is the extra `skills`; only who reads a frontmatter needs it.
    import yaml

__all__ = ["SkillText", "read_skill_text", "write_skill_text"]

_BLOCK: Final = re.compile(r"\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_PLAIN_KEY: Final = re.compile(r"(?!(?:null|true|false|y|n|yes|no|on|off)$)[a-z_][a-z0-9_-]*")
_LONGEST: Final = 16 * 1024
"""Characters of a frontmatter. Real ones have some hundred, and reading this many takes up to a second."""
_MOST_BRACKETS: Final = 256
"""Opening brackets in it. Nested ones take time that grows with their square."""

_CORE_SCHEMA: Final = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", [*"-+0123456789"]),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        [*"-+.0123456789"],
    ),
)
"""What a plain text means in YAML 1.2, by its first characters."""


class SkillText(msgspec.Struct):
    """A `SKILL.md`, taken apart."""

    frontmatter: JsonObject
    instructions: str
    """What follows the frontmatter."""


def read_skill_text(text: str) -> SkillText:
    """Take a `SKILL.md` apart. `FrontmatterError` says what is wrong with it."""
    found = _BLOCK.match(text)
    if found is None:
        raise FrontmatterError("it must begin with a YAML frontmatter between two lines of `---`")
    if len(found[1]) > _LONGEST:
        raise FrontmatterError(f"its frontmatter has more than {_LONGEST} characters")
    if found[1].count("[") + found[1].count("{") > _MOST_BRACKETS:
        raise FrontmatterError(f"its frontmatter has more than {_MOST_BRACKETS} opening brackets")
    return SkillText(_read_yaml(found[1]), text[found.end() :])


def _read_yaml(text: str) -> JsonObject:
    try:
        import yaml
    except ModuleNotFoundError:
        raise UsageError("reading a SKILL.md needs PyYAML: install `ekiden[skills]`") from None
    try:
        value: Any = yaml.load(text, Loader=_loader())  # noqa: S506  It is a SafeLoader with less.
        spelled: Any = decode(encode(value))
    except (yaml.YAMLError, RecursionError, *ENCODE_ERRORS) as error:
        raise FrontmatterError(f"its frontmatter is not YAML that JSON can represent: {error}") from None
    if not isinstance(spelled, dict) or spelled != value:
        raise FrontmatterError("its frontmatter must be an object whose keys are texts")
    fields: JsonObject = spelled  # pyright: ignore[reportUnknownVariableType]
    return fields


@cache
def _loader() -> "type[yaml.SafeLoader]":
    """A safe loader for the core schema of YAML 1.2, without aliases."""
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.events.AliasEvent):
                raise yaml.YAMLError("aliases are not allowed")
            return super().compose_node(parent, index)

        def flatten_mapping(self, node: Any) -> None:
            """`<<` is an ordinary key in YAML 1.2."""

    Loader.yaml_implicit_resolvers = {}
    untyped: Any = Loader  # Its types are not complete.
    for name, pattern, first in _CORE_SCHEMA:
        tag = f"tag:yaml.org,2002:{name}"
        untyped.add_implicit_resolver(tag, re.compile(rf"(?:{pattern})\Z"), first)
    Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
    Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
    return Loader


def _construct_int(loader: Any, node: Any) -> int:
    text: str = loader.construct_scalar(node)
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _construct_float(loader: Any, node: Any) -> float:
    text: str = loader.construct_scalar(node).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


def write_skill_text(frontmatter: JsonObject, instructions: str) -> str:
    """A `SKILL.md` with that frontmatter. Each field is a line of JSON, which is YAML as well."""
    lines = [f"{_key(name)}: {_flow(value)}" for name, value in frontmatter.items()]
    return "\n".join(["---", *lines, "---", "", instructions.lstrip("\n")])


def _key(name: str) -> str:
    return name if _PLAIN_KEY.fullmatch(name) else _flow(name)


def _flow(value: object) -> str:
    """A value in one line: JSON in which also those characters are escaped that YAML does not take."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", encode(value).decode())
