"""Skills of a server (SEP-2640): how they are registered, listed, got and read."""

import base64
import hashlib
import secrets
from pathlib import Path
from typing import Any

import pytest

from ekiden import Auth, CacheHint, Client, Principal, RegistrationError, Server, StaticTokens, UsageError
from ekiden.extensions import Skills
from tests.requirements.marks import requirement
from tests.serving import ask, error_of, post, request, result_of, served

FILES = {
    "git-workflow/SKILL.md": "---\nname: git-workflow\ndescription: How we branch\n---\n\nBranch first.\n",
    "acme/billing/refunds/SKILL.md": (
        "---\nname: refunds\ndescription: Refund an order\nlicense: MIT\n"
        "metadata: {version: 1.0, since: 2026-01-01}\n---\n\nSee [email](examples/email.md).\n"
    ),
    "acme/billing/refunds/examples/email.md": "Dear customer,\r\n",
    "acme/billing/refunds/scripts/run me.py": "print(1)\n",
    "acme/billing/refunds/.hidden": "x",
    "acme/billing/refunds/__pycache__/x.pyc": "x",
}
REFUNDS = "skill://acme/billing/refunds"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "skills" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    (tmp_path / "skills/acme/billing/refunds/logo.bin").write_bytes(bytes(range(256)))
    return tmp_path / "skills"


def serving(skills: Skills, **options: Any) -> Server:
    return Server("s", extensions=[skills], **options)


async def listed(server: Server) -> list[dict[str, Any]]:
    """All entries, page by page."""
    entries: list[dict[str, Any]] = []
    cursor: dict[str, Any] = {}
    while True:
        page = (await ask(server, "skills/list", cursor))["result"]
        entries += page["skills"]
        if "nextCursor" not in page:
            return entries
        cursor = {"cursor": page["nextCursor"]}


def one(name: str = "one", **options: Any) -> Skills:
    skills = Skills(**options)
    skills.add(name, description="A skill", instructions="# Do it")
    return skills


# What is declared


@requirement("SKILL-01")
async def test_the_extension_and_resources_are_declared(folder: Path) -> None:
    for skills in (Skills(folder), Skills()):
        declared = (await result_of(serving(skills), "server/discover"))["capabilities"]
        assert declared["extensions"] == {"io.modelcontextprotocol/skills": {"directoryRead": True}}
        assert "resources" in declared


# From a folder


@requirement("SKILL-04")
async def test_every_directory_with_a_skill_file_is_a_skill(folder: Path) -> None:
    entries = await listed(serving(Skills(folder)))
    assert [entry["uri"] for entry in entries] == [f"{REFUNDS}/SKILL.md", "skill://git-workflow/SKILL.md"]
    refunds = entries[0]
    assert refunds["frontmatter"] == {
        "name": "refunds",
        "description": "Refund an order",
        "license": "MIT",
        "metadata": {"version": 1.0, "since": "2026-01-01"},
    }


@requirement("SKILL-05")
async def test_an_entry_lists_every_file_with_its_digest_and_size(folder: Path) -> None:
    (refunds, _) = await listed(serving(Skills(folder)))
    root = folder / "acme/billing/refunds"
    names = {
        "SKILL.md": "SKILL.md",
        "examples/email.md": "examples/email.md",
        "logo.bin": "logo.bin",
        "scripts/run me.py": "scripts/run%20me.py",
    }
    expected = [
        {
            "uri": f"{REFUNDS}/{spelled}",
            "digest": f"sha256:{hashlib.sha256((root / name).read_bytes()).hexdigest()}",
            "size": len((root / name).read_bytes()),
        }
        for name, spelled in names.items()
    ]
    assert refunds["resources"] == expected


async def test_every_file_can_be_read_as_it_is(folder: Path) -> None:
    server = serving(Skills(folder))
    (refunds, _) = await listed(server)
    for file in refunds["resources"]:
        (content,) = (await result_of(server, "resources/read", {"uri": file["uri"]}))["contents"]
        assert content["uri"] == file["uri"]
        data = content["text"].encode() if "text" in content else base64.b64decode(content["blob"])
        assert f"sha256:{hashlib.sha256(data).hexdigest()}" == file["digest"]


async def test_media_types_fit_the_files(folder: Path) -> None:
    server = serving(Skills(folder))
    types = {}
    for name in ("SKILL.md", "examples/email.md", "scripts/run%20me.py", "logo.bin"):
        (content,) = (await result_of(server, "resources/read", {"uri": f"{REFUNDS}/{name}"}))["contents"]
        types[name] = (content["mimeType"], "text" in content)
    assert types == {
        "SKILL.md": ("text/markdown", True),
        "examples/email.md": ("text/markdown", True),
        "scripts/run%20me.py": ("text/x-python", True),
        "logo.bin": ("application/octet-stream", False),
    }


@requirement("SKILL-03")
async def test_a_skill_file_is_a_listed_resource_and_the_others_are_not(folder: Path) -> None:
    resources = (await result_of(serving(Skills(folder)), "resources/list"))["resources"]
    assert [(each["uri"], each["name"], each["description"], each["mimeType"]) for each in resources] == [
        (f"{REFUNDS}/SKILL.md", "refunds", "Refund an order", "text/markdown"),
        ("skill://git-workflow/SKILL.md", "git-workflow", "How we branch", "text/markdown"),
    ]


async def test_a_folder_may_be_a_skill_itself(folder: Path) -> None:
    (entry,) = await listed(serving(Skills(folder / "git-workflow", prefix="team")))
    assert entry["uri"] == "skill://team/git-workflow/SKILL.md"


@requirement("SKILL-05")
async def test_a_skill_within_a_skill_is_one_of_its_own_and_part_of_the_other(folder: Path) -> None:
    inner = folder / "git-workflow/rebase"
    inner.mkdir()
    (inner / "SKILL.md").write_text("---\nname: rebase\ndescription: x\n---\n")
    entries = await listed(serving(Skills(folder / "git-workflow")))
    files = {entry["frontmatter"]["name"]: [file["uri"] for file in entry["resources"]] for entry in entries}
    nested = "skill://git-workflow/rebase/SKILL.md"
    assert files == {"git-workflow": ["skill://git-workflow/SKILL.md", nested], "rebase": [nested]}


async def test_what_changes_on_disk_later_does_not_change_what_is_served(folder: Path) -> None:
    server = serving(Skills(folder))
    (folder / "git-workflow/SKILL.md").write_text("changed")
    (content,) = (await result_of(server, "resources/read", {"uri": "skill://git-workflow/SKILL.md"}))[
        "contents"
    ]
    assert "Branch first." in content["text"]


# In code


async def test_a_skill_can_be_written_in_code() -> None:
    skills = Skills()
    skills.add(
        "acme/refunds",
        description='Refund: an "order"',
        instructions="# Refunds\n",
        files={"a/b.txt": "text", "c.bin": b"\xff\x00"},
        license="MIT",
    )
    server = serving(skills)
    (entry,) = await listed(server)
    assert entry["frontmatter"] == {"name": "refunds", "description": 'Refund: an "order"', "license": "MIT"}
    async with Client(server) as client:
        loaded = await client.load_skill("skill://acme/refunds/SKILL.md")
        assert loaded.instructions == "\n# Refunds\n"
        assert (await loaded.read("a/b.txt"), await loaded.read("c.bin")) == (b"text", b"\xff\x00")


@requirement("SKILL-06")
async def test_a_generated_skill_is_made_anew_for_every_reader() -> None:
    skills, days = Skills(), iter(["Monday", "Tuesday"])

    @skills.generate("reports/daily", description="Today's report")
    async def daily() -> str:
        return f"It is {next(days)}."

    server = serving(skills)
    (entry,) = await listed(server)
    assert entry["resources"] == "dynamic"
    for day in ("Monday", "Tuesday"):
        async with Client(server) as client:
            assert day in (await client.load_skill(entry["uri"])).text
    children = (await ask(server, "resources/directory/read", {"uri": "skill://reports/daily"}))["result"]
    assert [child["name"] for child in children["resources"]] == ["SKILL.md"]


async def test_skills_come_and_go_while_a_server_runs() -> None:
    skills = one()
    server = serving(skills)
    skills.add("two", description="Another", instructions="x")
    skills.remove("one")
    assert [entry["uri"] for entry in await listed(server)] == ["skill://two/SKILL.md"]
    assert (await error_of(server, "resources/read", {"uri": "skill://one/SKILL.md"}))["code"] == -32602
    assert [each["name"] for each in (await result_of(server, "resources/list"))["resources"]] == ["two"]
    with pytest.raises(UsageError, match="no skill 'one'"):
        skills.remove("one")


async def test_two_servers_may_have_the_same_skills() -> None:
    skills = one()
    servers = [serving(skills), serving(skills)]
    skills.add("two", description="Another", instructions="x")
    assert [len(await listed(server)) for server in servers] == [2, 2]


# The methods


@requirement("SKILL-09")
async def test_one_skill_is_got_by_its_uri(folder: Path) -> None:
    server = serving(Skills(folder, cache=CacheHint(ttl_ms=5000, scope="public")))
    result = (await ask(server, "skills/get", {"uri": f"{REFUNDS}/SKILL.md"}))["result"]
    assert result["skill"] == (await listed(server))[0]
    assert (result["ttlMs"], result["cacheScope"], result["resultType"]) == (5000, "public", "complete")
    assert "nextCursor" not in result


@requirement("SKILL-10")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("skills/get", {"uri": "skill://nowhere/SKILL.md"}),
        ("skills/get", {"uri": REFUNDS}),
        ("skills/get", {}),
        ("skills/get", {"uri": 3}),
        ("skills/list", {"cursor": "invented"}),
        ("skills/list", {"cursor": 3}),
        ("resources/directory/read", {"uri": f"{REFUNDS}/SKILL.md"}),
        ("resources/directory/read", {"uri": "skill://nowhere"}),
        ("resources/directory/read", {"uri": f"{REFUNDS}/"}),
        ("resources/directory/read", {"uri": REFUNDS, "cursor": "invented"}),
        ("resources/read", {"uri": f"{REFUNDS}/nothing.md"}),
        ("resources/read", {"uri": f"{REFUNDS}/../../../etc/passwd"}),
        ("resources/read", {"uri": REFUNDS}),
    ],
)
async def test_what_is_not_served_is_an_invalid_parameter(folder: Path, method: str, params: Any) -> None:
    assert (await error_of(serving(Skills(folder)), method, params))["code"] == -32602


@requirement("SKILL-08")
async def test_a_list_has_pages_that_do_not_split_an_entry() -> None:
    skills = Skills(page_size=2)
    for number in range(5):
        skills.add(f"skill-{number}", description="x", instructions="x")
    server = serving(skills)
    pages = []
    cursor: dict[str, Any] = {}
    while True:
        page = (await ask(server, "skills/list", cursor))["result"]
        pages.append([entry["frontmatter"]["name"] for entry in page["skills"]])
        if "nextCursor" not in page:
            break
        cursor = {"cursor": page["nextCursor"]}
    assert pages == [["skill-0", "skill-1"], ["skill-2", "skill-3"], ["skill-4"]]
    async with Client(server) as client:
        assert len(await client.list_skills()) == 5


@requirement("SKILL-11")
async def test_directories_list_what_is_directly_in_them(folder: Path) -> None:
    server = serving(Skills(folder, page_size=2))

    async def children(uri: str) -> list[tuple[str, str]]:
        async with Client(server) as client:
            return [(child.name, child.mime_type or "") for child in await client.read_directory(uri)]

    assert await children(REFUNDS) == [
        ("SKILL.md", "text/markdown"),
        ("examples", "inode/directory"),
        ("logo.bin", "application/octet-stream"),
        ("scripts", "inode/directory"),
    ]
    assert await children(f"{REFUNDS}/examples") == [("email.md", "text/markdown")]
    assert await children("skill://acme") == [("billing", "inode/directory")]


async def test_clients_of_2025_have_skills_too(folder: Path) -> None:
    async with Client(serving(Skills(folder)), mode="legacy") as client:
        entry = (await client.list_skills())[0]
        assert await client.get_skill(entry.uri) == entry
        loaded = await client.load_skill(entry)
        assert await loaded.read("examples/email.md") == b"Dear customer,\r\n"
        assert len(await client.read_directory(REFUNDS)) == 4
        raw = await client.request("skills/list")
        assert set(raw) == {"skills"}


async def test_scopes_hold_for_lists_and_files() -> None:
    alice, bob = Principal("alice", scopes=frozenset({"skills"})), Principal("bob")
    tokens = {secrets.token_hex(8): who for who in (alice, bob)}
    auth = Auth("http://127.0.0.1/mcp", verifier=StaticTokens(tokens))
    server = serving(one(scopes=["skills"]), auth=auth)
    uri = {"uri": "skill://one/SKILL.md"}
    messages = [request("skills/list"), request("skills/get", uri), request("resources/read", uri)]
    async with served(server) as base:
        seen = [
            [(await post(base, each, authorization=f"Bearer {token}")).status_code for each in messages]
            for token in tokens
        ]
    assert seen == [[200, 200, 200], [403, 403, 403]]


# Bad input


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("no frontmatter", "must begin with a YAML frontmatter"),
        ("---\nname: other\ndescription: x\n---\n", "must be the last part of the path"),
        ("---\nname: git-workflow\n---\n", "needs a description"),
        ("---\nname: git-workflow\ndescription: ''\n---\n", "needs a description"),
        ("---\nname: git-workflow\ndescription: " + "x" * 1025 + "\n---\n", "needs a description"),
        ("---\ndescription: x\n---\n", "is not the name of a skill"),
        ("---\nname: [\n---\n", "is not YAML"),
        (b"---\nname: \xff\n---\n", "cannot be read"),
    ],
)
def test_a_skill_file_that_breaks_the_rules_is_refused(folder: Path, text: Any, problem: str) -> None:
    data = text if isinstance(text, bytes) else text.encode()
    (folder / "git-workflow/SKILL.md").write_bytes(data)
    with pytest.raises(RegistrationError, match=f"skill 'git-workflow'.*{problem}"):
        Skills(folder)


@requirement("SKILL-02")
@pytest.mark.parametrize("name", ["Upper", "a--b", "-a", "a-", "a b", "a" * 65, "ä", "", "a.b", ".."])
def test_names_follow_the_rules_of_agent_skills(name: str) -> None:
    with pytest.raises(RegistrationError):
        Skills().add(name, description="x", instructions="x")


def test_a_folder_that_is_missing_or_has_no_skills_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RegistrationError, match="there is no folder"):
        Skills(tmp_path / "nowhere")
    with pytest.raises(RegistrationError, match="no directory in"):
        Skills(tmp_path)


def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (folder / "git-workflow/link.md").symlink_to(tmp_path / "secret")
    with pytest.raises(RegistrationError, match="a link that leads out"):
        Skills(folder)


def test_a_link_to_a_directory_above_does_not_lead_in_circles(folder: Path) -> None:
    (folder / "git-workflow/loop").symlink_to(folder)
    Skills(folder)


@requirement("SKILL-07")
def test_a_skill_that_hosts_need_not_take_is_refused(tmp_path: Path) -> None:
    many = {f"{number}.md": "x" for number in range(512)}
    with pytest.raises(RegistrationError, match="513 files, and hosts take at most 512"):
        Skills().add("big", description="x", instructions="x", files=many)
    with pytest.raises(RegistrationError, match="bytes, and hosts take at most 16777216"):
        Skills().add("big", description="x", instructions="x", files={"a": bytes(16 * 1024 * 1024)})
    root = tmp_path / "big"
    root.mkdir()
    (root / "SKILL.md").write_text("---\nname: big\ndescription: x\n---\n")
    for number in range(600):
        (root / f"{number}.md").write_text("x")
    with pytest.raises(RegistrationError, match="hosts take at most 512"):
        Skills(root)


def test_one_skill_twice_is_refused_and_one_name_twice_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    skills = one()
    with pytest.raises(RegistrationError, match="'one' is registered already"):
        skills.add("one", description="x", instructions="x")
    skills.add("other/one", description="x", instructions="x")
    assert "Two skills have the name 'one'" in caplog.text


@pytest.mark.parametrize("name", ["../x", "a//b", "/a", "", "./a", "SKILL.md"])
def test_a_path_that_is_not_in_the_skill_is_refused(name: str) -> None:
    with pytest.raises(RegistrationError):
        Skills().add("one", description="x", instructions="x", files={name: "x"})


def test_skills_twice_on_a_server_are_refused() -> None:
    with pytest.raises(RegistrationError, match=r"io.modelcontextprotocol/skills' is registered already"):
        Server("s", extensions=[Skills(), Skills()])


def test_a_page_has_at_least_one_entry() -> None:
    with pytest.raises(UsageError, match="page_size"):
        Skills(page_size=0)
