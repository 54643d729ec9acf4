"""The official types of messages by method and version, and our own of what the official package lacks.

`mcp_types.methods` has the types of every released version, generated from the specification's JSON schemas.
It leaves out all methods of tasks, for which there are the models below (SEP-2663, and 2025-11-25 from the
same package), those of skills (SEP-2640), and the draft 2026-06-XX, of which only the envelope is checked.
Tests of extensions make up methods of their own, which begin with one of `INVENTED`.
"""

from functools import cache
from typing import Any, Literal, TypeAlias

import mcp_types
from mcp_types import methods
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter, ValidationError, model_validator

Side: TypeAlias = Literal["client", "server"]

MODERN = "2026-07-28"
NOVEMBER = "2025-11-25"


class Task(BaseModel):
    """`Task` of SEP-2663."""

    model_config = ConfigDict(strict=True)

    taskId: str
    status: Literal["working", "input_required", "completed", "cancelled", "failed"]
    createdAt: str
    lastUpdatedAt: str
    ttlMs: int | None
    pollIntervalMs: int | None = Field(None, ge=0)
    statusMessage: str = ""


class CreateTaskResult(Task):
    """What a request gets that has become a task."""

    resultType: Literal["task"]


_BELONGS = {"input_required": "inputRequests", "completed": "result", "failed": "error"}


class DetailedTask(Task):
    """A task with what belongs to its status."""

    inputRequests: dict[str, dict[str, Any]] | None = None
    result: dict[str, Any] | None = None
    error: mcp_types.ErrorData | None = None

    @model_validator(mode="after")
    def _has_what_its_status_says(self) -> "DetailedTask":
        wanted = _BELONGS.get(self.status)
        for name in _BELONGS.values():
            if (getattr(self, name) is not None) != (name == wanted):
                raise ValueError(f"a task that is {self.status} has a wrong {name}")
        return self


class NotifiedTask(RootModel[DetailedTask | Task]):
    """`NotificationParams & Task`: with what belongs to its status, or without any of it."""

    @model_validator(mode="before")
    @classmethod
    def _has_all_or_nothing(cls, params: dict[str, Any]) -> "DetailedTask | Task":
        has_payload = not params.keys().isdisjoint(_BELONGS.values())
        return (DetailedTask if has_payload else Task).model_validate(params)


class GetTaskResult(DetailedTask):
    """The result of `tasks/get`."""

    resultType: Literal["complete"]


class Acknowledged(BaseModel):
    """The result of `tasks/update` and `tasks/cancel`."""

    resultType: Literal["complete"]


class OfTask(BaseModel):
    """Parameters that name a task."""

    taskId: str


class UpdateOfTask(OfTask):
    """Those of `tasks/update`."""

    inputResponses: dict[str, dict[str, Any]]


class SkillResource(BaseModel):
    """A file of a skill, as SEP-2640 lists it."""

    model_config = ConfigDict(strict=True, extra="forbid")

    uri: str
    digest: str = Field(pattern="^sha256:[0-9a-f]{64}$")
    size: int = Field(ge=0)


class Frontmatter(BaseModel):
    """The fields that every skill has, and whatever else its author wrote."""

    model_config = ConfigDict(strict=True, extra="allow")

    name: str = Field(min_length=1, max_length=64)
    description: str = Field(min_length=1)


class Skill(BaseModel):
    """The entry of a skill."""

    model_config = ConfigDict(strict=True, extra="forbid")

    uri: str = Field(pattern="/SKILL.md$")
    frontmatter: Frontmatter
    resources: list[SkillResource] | Literal["dynamic"]


class Cached(BaseModel):
    """`CacheableResult` of 2026-07-28."""

    resultType: Literal["complete"]
    ttlMs: int = Field(ge=0)
    cacheScope: Literal["public", "private"]


class ListedSkills(BaseModel):
    """The result of `skills/list`, as a client of 2025 gets it."""

    skills: list[Skill]
    nextCursor: str | None = None


class GotSkill(BaseModel):
    """The result of `skills/get`, as a client of 2025 gets it."""

    skill: Skill


class ListSkillsResult(ListedSkills, Cached):
    """The result of `skills/list`."""


class GetSkillResult(GotSkill, Cached):
    """The result of `skills/get`."""


class Directory(BaseModel):
    """The result of `resources/directory/read`."""

    resources: list[mcp_types.Resource]
    nextCursor: str | None = None


class OfSkill(BaseModel):
    """Parameters that name a skill or a directory."""

    uri: str


INVENTED = ("search/", "receipts/", "notifications/search/", "notifications/receipts/", "late")
"""How the methods of extensions begin that tests and examples make up."""


class Tagged(BaseModel):
    """Any result of 2026-07-28."""

    resultType: str


OWN_RESULTS: dict[tuple[str, str], Any] = {
    ("skills/list", MODERN): ListSkillsResult,
    ("skills/get", MODERN): GetSkillResult,
    ("resources/directory/read", MODERN): Directory,
    ("skills/list", NOVEMBER): ListedSkills,
    ("skills/get", NOVEMBER): GotSkill,
    ("resources/directory/read", NOVEMBER): Directory,
    ("tasks/get", MODERN): GetTaskResult,
    ("tasks/update", MODERN): Acknowledged,
    ("tasks/cancel", MODERN): Acknowledged,
    ("tasks/get", NOVEMBER): mcp_types.GetTaskResult,
    ("tasks/cancel", NOVEMBER): mcp_types.CancelTaskResult,
    ("tasks/list", NOVEMBER): mcp_types.ListTasksResult,
    ("tasks/result", NOVEMBER): mcp_types.CallToolResult,
}
OWN_PARAMS: dict[tuple[str, str], Any] = {
    **{("skills/list", version): dict[str, Any] for version in (MODERN, NOVEMBER)},
    **{("skills/get", version): OfSkill for version in (MODERN, NOVEMBER)},
    **{("resources/directory/read", version): OfSkill for version in (MODERN, NOVEMBER)},
    ("tasks/get", MODERN): OfTask,
    ("tasks/update", MODERN): UpdateOfTask,
    ("tasks/cancel", MODERN): OfTask,
    ("notifications/tasks", MODERN): NotifiedTask,
    ("tasks/get", NOVEMBER): mcp_types.GetTaskRequestParams,
    ("tasks/cancel", NOVEMBER): mcp_types.CancelTaskRequestParams,
    ("tasks/result", NOVEMBER): mcp_types.GetTaskPayloadRequestParams,
    ("tasks/list", NOVEMBER): dict[str, Any],
    ("notifications/tasks/status", NOVEMBER): mcp_types.TaskStatusNotificationParams,
}
_CREATED: dict[str, Any] = {MODERN: CreateTaskResult, NOVEMBER: mcp_types.CreateTaskResult}


def problem_of_request(side: Side, version: str, message: dict[str, Any]) -> str | None:
    """What is wrong with a request or a notification."""
    if version not in KNOWN_PROTOCOL_VERSIONS:
        return None
    key, params = (message["method"], version), message.get("params") or {}
    if message["method"].startswith(INVENTED):
        return None
    if key in OWN_PARAMS:
        return _problem(OWN_PARAMS[key], params)
    if side == "client":
        types = methods.CLIENT_REQUESTS if "id" in message else methods.CLIENT_NOTIFICATIONS
    else:
        types = methods.SERVER_REQUESTS if "id" in message else methods.SERVER_NOTIFICATIONS
    if key not in types:
        return f"{version} has no such message of a {side}"
    return _problem(types[key], message)


def problem_of_response(side: Side, version: str, method: str, message: dict[str, Any]) -> str | None:
    """What is wrong with the response to a request of this method."""
    if "error" in message:
        return _problem(mcp_types.ErrorData, message["error"])
    result = message.get("result")
    if version not in KNOWN_PROTOCOL_VERSIONS:
        return None if isinstance(result, dict) else "it is not an object"
    if _is_created_task(result) and version in _CREATED:
        return _problem(_CREATED[version], result)
    if method.startswith(INVENTED) or (isinstance(result, dict) and result.get("resultType") == "receipt"):
        return _problem(Tagged if version == MODERN else dict[str, Any], result)
    results = methods.SERVER_RESULTS if side == "server" else methods.CLIENT_RESULTS
    wanted = OWN_RESULTS.get((method, version)) or results.get((method, version))
    return f"{version} has no {method}" if wanted is None else _problem(wanted, result)


def _is_created_task(result: Any) -> bool:
    return isinstance(result, dict) and (
        result.get("resultType") == "task" or set(result) - {"_meta"} == {"task"}
    )


def _problem(wanted: Any, value: Any) -> str | None:
    try:
        _adapter(wanted).validate_python(value, by_name=False)
    except ValidationError as error:
        return "; ".join(
            f"{'.'.join(str(part) for part in found['loc'])}: {found['msg']}"
            for found in error.errors(include_url=False, include_input=False)[:5]
        )
    return None


@cache
def _adapter(wanted: Any) -> TypeAdapter[Any]:
    return TypeAdapter(wanted)
