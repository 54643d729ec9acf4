"""Demands of the extension for skills, `io.modelcontextprotocol/skills` (SEP-2640): of servers, of clients.

Left out: what binds hosts in how they show skills, ask their users and run code.
"""

from .rows import Row

_SEP = "SEP-2640 § "

SKILLS = (
    Row(
        "SKILL-01", "MUST", _SEP + "Capability Negotiation", "A server with skills declares `resources`, too."
    ),
    Row(
        "SKILL-02",
        "MUST",
        _SEP + "Resource Mapping",
        "The last part of a skill's path is its name, which follows the rules of Agent Skills.",
    ),
    Row(
        "SKILL-03",
        "SHOULD",
        _SEP + "Resource Metadata",
        "A `SKILL.md` is a resource with the name and description of its frontmatter, of type text/markdown.",
    ),
    Row("SKILL-04", "MUST", _SEP + "Frontmatter", "An entry has the frontmatter as it was written, whole."),
    Row(
        "SKILL-05",
        "MUST",
        _SEP + "Resources",
        "An entry lists every file once, those of nested skills among them, with digest and size.",
    ),
    Row(
        "SKILL-06",
        "MUST",
        _SEP + "Resources",
        'A skill that is generated has `"dynamic"` in place of a list.',
    ),
    Row("SKILL-07", "SHOULD NOT", _SEP + "Limits", "No skill of more than 512 files or 16 MiB is served."),
    Row("SKILL-08", "states", _SEP + "Listing Skills", "Pages never split an entry."),
    Row(
        "SKILL-09", "MUST", _SEP + "Listing Skills; Getting a Skill", "Results have `ttlMs` and `cacheScope`."
    ),
    Row("SKILL-10", "MUST", _SEP + "Error Handling", "What is not served is -32602."),
    Row(
        "SKILL-11",
        "MUST",
        _SEP + "Reading Directories",
        "A directory lists its direct children, all of them.",
    ),
    Row("SKILL-12", "MUST NOT", _SEP + "Capability Negotiation", "Nothing is asked that was not declared."),
    Row("SKILL-13", "MUST NOT", _SEP + "Lazy Retrieval", "No file is read before it is needed."),
    Row("SKILL-14", "MUST", _SEP + "Verification on Read", "Size and digest of what is read are verified."),
    Row(
        "SKILL-15", "MUST", _SEP + "Frontmatter Verification", "The frontmatter that is read is the entry's."
    ),
    Row("SKILL-16", "MUST", _SEP + "The Acting Window", "Only files that the held entry lists are read."),
    Row("SKILL-17", "MUST NOT", _SEP + "Resources", "An entry that breaks a rule is not loaded."),
    Row("SKILL-18", "MUST", _SEP + "Listing Skills", "A URI is enough to load a skill."),
)
