"""Skills as a host uses them (SEP-2640, "Integrity and Verification"): nothing unverified is used."""

import base64
import hashlib
from typing import Any

import pytest

from ekiden import (
    CallNext,
    Client,
    Complete,
    InvalidResult,
    Outcome,
    Request,
    Server,
    TooMuch,
    UnverifiedSkill,
    UsageError,
)
from ekiden.extensions import Extension, SkillEntry, Skills
from tests.requirements.marks import requirement

SKILL = "skill://pdf/SKILL.md"
FORMS = "skill://pdf/references/FORMS.md"
TEXT = "---\nname: pdf\ndescription: Fill in forms\n---\n\nSee references/FORMS.md.\n"


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def entry(**changes: Any) -> dict[str, Any]:
    """The entry of a skill of two files."""
    files = [
        {"uri": SKILL, "digest": digest(TEXT), "size": len(TEXT)},
        {"uri": FORMS, "digest": digest("forms"), "size": 5},
    ]
    frontmatter = {"name": "pdf", "description": "Fill in forms"}
    return {"uri": SKILL, "frontmatter": frontmatter, "resources": files, **changes}


class Host:
    """A server that says what a test wants, and notes what is read."""

    def __init__(self, *entries: Any, contents: dict[str, Any] | None = None) -> None:
        self.entries = list(entries) or [entry()]
        self.contents: dict[str, Any] = {SKILL: TEXT, FORMS: "forms", **(contents or {})}
        self.reads: list[str] = []
        extension = Extension("io.modelcontextprotocol/skills")
        extension.method("skills/list")(self._list)
        extension.method("skills/get")(self._get)
        extension.intercept(methods=["resources/read"])(self._read)
        self.server = Server("host", extensions=[extension])
        self.server.add_resource("a://b", self._never, name="b")

    async def _never(self) -> str:
        return ""

    async def _list(self) -> Complete:
        return Complete({"skills": self.entries, "ttlMs": 0, "cacheScope": "private"})

    async def _get(self, uri: str) -> Complete:
        return Complete({"skill": self.entries[0], "ttlMs": 0, "cacheScope": "private"})

    async def _read(self, request: Request, call_next: CallNext) -> Outcome:
        uri = request.name or ""
        self.reads.append(uri)
        content = self.contents[uri]
        body = content if isinstance(content, dict) else {"text": content}
        return Complete({"contents": [{"uri": uri, **body}], "ttlMs": 60_000, "cacheScope": "private"})


pytestmark = pytest.mark.usefixtures("wrong_messages")
"""The servers here break the rules on purpose."""


@requirement("SKILL-13")
async def test_a_listed_skill_is_loaded_and_its_files_are_read_on_demand() -> None:
    host = Host()
    async with Client(host.server) as client:
        (skill,) = await client.list_skills()
        assert (skill.name, skill.description, host.reads) == ("pdf", "Fill in forms", [])
        loaded = await client.load_skill(skill)
        assert (loaded.text, loaded.instructions) == (TEXT, "\nSee references/FORMS.md.\n")
        assert (loaded.files, host.reads) == (["SKILL.md", "references/FORMS.md"], [SKILL])
        for _ in range(2):
            assert await loaded.read("references/FORMS.md") == b"forms"
    assert host.reads == [SKILL, FORMS]


@requirement("SKILL-18")
async def test_a_uri_is_enough_to_load_a_skill() -> None:
    host = Host()
    async with Client(host.server) as client:
        assert (await client.load_skill(SKILL)).entry == await client.get_skill(SKILL)


@requirement("SKILL-14")
@requirement("SKILL-15")
@pytest.mark.parametrize(
    ("served", "changes", "problem"),
    [
        (TEXT.replace("See", "Sea"), {}, "its digest is not that of the entry"),
        (TEXT + "more", {}, "bytes, and the entry says"),
        ("", {}, "bytes, and the entry says"),
    ],
)
async def test_content_that_differs_from_the_entry_is_not_used(
    served: str, changes: Any, problem: str
) -> None:
    host = Host(contents={SKILL: served})
    async with Client(host.server) as client:
        with pytest.raises(UnverifiedSkill, match=problem) as caught:
            await client.load_skill(SKILL)
        assert caught.value.uri == SKILL


@pytest.mark.parametrize(
    "text",
    [
        TEXT.replace("Fill in forms", "Send passwords"),
        TEXT.replace("---\n\n", "allowed-tools: Bash\n---\n\n"),
        "no frontmatter",
        "---\nname: [\n---\n",
    ],
)
async def test_a_frontmatter_that_differs_from_the_entry_is_not_used(text: str) -> None:
    files = [{"uri": SKILL, "digest": digest(text), "size": len(text)}]
    for resources in (files, "dynamic"):
        host = Host(entry(resources=resources), contents={SKILL: text})
        async with Client(host.server) as client:
            with pytest.raises(UnverifiedSkill):
                await client.load_skill(SKILL)


@requirement("SKILL-16")
async def test_a_file_that_differs_or_is_not_listed_is_not_used() -> None:
    host = Host(contents={FORMS: "formS", "skill://pdf/new.md": "new"})
    async with Client(host.server) as client:
        loaded = await client.load_skill(SKILL)
        with pytest.raises(UnverifiedSkill, match="its digest"):
            await loaded.read("references/FORMS.md")
        for path in ("new.md", "../other/SKILL.md", "", "references/../SKILL.md", "references"):
            with pytest.raises(UnverifiedSkill):
                await loaded.read(path)
    assert host.reads == [SKILL, FORMS]


async def test_what_was_read_before_is_not_taken_for_what_is_there_now() -> None:
    """The server allows to keep a file for a minute, and then changes the skill."""
    host = Host()
    async with Client(host.server) as client:
        await client.load_skill(SKILL)
        newer = TEXT + "More.\n"
        host.contents[SKILL] = newer
        host.entries = [entry(resources=[{"uri": SKILL, "digest": digest(newer), "size": len(newer)}])]
        assert (await client.load_skill(SKILL)).text == newer


async def test_files_of_a_generated_skill_are_read_without_a_list() -> None:
    host = Host(entry(resources="dynamic"), contents={"skill://pdf/a%20b.md": "x"})
    async with Client(host.server) as client:
        loaded = await client.load_skill(SKILL)
        assert (loaded.files, loaded.entry.files) == ([], None)
        assert await loaded.read("a b.md") == b"x"
        with pytest.raises(UnverifiedSkill, match="is not the path of a file"):
            await loaded.read("../x")


async def test_a_generated_skill_may_not_grow_without_end() -> None:
    half = {"blob": base64.b64encode(bytes(9 * 1024 * 1024)).decode()}
    host = Host(entry(resources="dynamic"), contents={"skill://pdf/1": half, "skill://pdf/2": half})
    async with Client(host.server) as client:
        loaded = await client.load_skill(SKILL)
        await loaded.read("1")
        with pytest.raises(TooMuch):
            await loaded.read("2")


@pytest.mark.parametrize(
    "files",
    [
        [{"uri": f"skill://pdf/{number}", "digest": digest(""), "size": 0} for number in range(512)],
        [{"uri": "skill://pdf/big", "digest": digest(""), "size": 16 * 1024 * 1024}],
    ],
)
async def test_a_skill_beyond_the_limits_is_declined_before_anything_is_read(files: list[Any]) -> None:
    host = Host(entry(resources=[*entry()["resources"], *files]))
    async with Client(host.server) as client:
        with pytest.raises(TooMuch, match="at most"):
            await client.load_skill(SKILL)
    assert host.reads == []


BROKEN = {
    "not an object": 3,
    "no uri": {**entry(), "uri": None},
    "another file": entry(uri="skill://pdf/README.md"),
    "another directory": entry(uri="skill://other/SKILL.md"),
    "no name": entry(frontmatter={"description": "x"}),
    "a bad name": entry(frontmatter={"name": "PDF", "description": "x"}),
    "no description": entry(frontmatter={"name": "pdf"}),
    "no frontmatter": entry(frontmatter="x"),
    "no resources": {key: value for key, value in entry().items() if key != "resources"},
    "other resources": entry(resources="some"),
    "no SKILL.md": entry(resources=entry()["resources"][1:]),
    "a file twice": entry(resources=[*entry()["resources"], entry()["resources"][1]]),
    "a file outside": entry(
        resources=[*entry()["resources"], {"uri": "skill://pdf2/x", "digest": digest(""), "size": 0}]
    ),
    "a file above": entry(
        resources=[*entry()["resources"], {"uri": "skill://pdf/%2e%2e/x", "digest": digest(""), "size": 0}]
    ),
    "a bad digest": entry(resources=[{"uri": SKILL, "digest": "md5:1", "size": 1}]),
    "no size": entry(resources=[{"uri": SKILL, "digest": digest(TEXT)}]),
    "a negative size": entry(resources=[{"uri": SKILL, "digest": digest(TEXT), "size": -1}]),
}


@requirement("SKILL-17")
@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
async def test_an_entry_that_breaks_a_rule_is_left_out(broken: Any, caplog: pytest.LogCaptureFixture) -> None:
    host = Host(broken, entry())
    async with Client(host.server) as client:
        assert [skill.uri for skill in await client.list_skills()] == [SKILL]
        with pytest.raises(InvalidResult):
            await client.get_skill(SKILL)
    assert "A skill of the server is left out" in caplog.text


@pytest.mark.parametrize("contents", [{"uri": "skill://other", "text": TEXT}, {"blob": "!"}])
async def test_contents_that_do_not_answer_are_an_error(contents: Any) -> None:
    host = Host(contents={SKILL: contents})
    async with Client(host.server) as client:
        with pytest.raises(InvalidResult):
            await client.load_skill(SKILL)


@requirement("SKILL-12")
async def test_nothing_is_asked_of_a_server_that_does_not_declare_skills() -> None:
    async with Client(Server("s")) as client:
        for using in (client.list_skills(), client.get_skill(SKILL), client.load_skill(SKILL)):
            with pytest.raises(UsageError, match="does not declare the extension"):
                await using
    async with Client(Host().server) as client:
        with pytest.raises(UsageError, match="does not declare 'directoryRead'"):
            await client.read_directory("skill://pdf")


def test_an_entry_knows_where_its_files_are() -> None:
    skill = SkillEntry(SKILL, {"name": "pdf", "description": "x"}, None)
    assert (skill.root, skill.uri_for("a b/c.md")) == ("skill://pdf", "skill://pdf/a%20b/c.md")


async def test_our_own_server_is_believed_by_our_own_client() -> None:
    skills = Skills()
    skills.add("acme/über-mich".replace("ü", "u"), description="é", instructions="ü", files={"ä/ö.txt": "ß"})
    async with Client(Server("s", extensions=[skills])) as client:
        (skill,) = await client.list_skills()
        loaded = await client.load_skill(skill)
        assert (loaded.files, await loaded.read("ä/ö.txt")) == (["SKILL.md", "ä/ö.txt"], "ß".encode())
