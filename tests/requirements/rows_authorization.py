"""Demands of the authorization pages that bind a server; those that bind clients and issuers are left out."""

from .rows import Row

_PAGE = "basic/authorization/index § "
_FIND = "basic/authorization/authorization-server-discovery § "
_SAFE = "basic/authorization/security-considerations § "

AUTHORIZATION = (
    Row("AUTH-01", "MUST", _PAGE + "Overview", "The server has protected-resource metadata (RFC 9728)."),
    Row(
        "AUTH-02",
        "MUST",
        _FIND + "Authorization Server Location",
        "The metadata names at least one authorization server.",
    ),
    Row(
        "AUTH-03",
        "MUST",
        _FIND + "Protected Resource Metadata Discovery Requirements",
        "Clients find the metadata by the challenge of a 401, or at its well-known paths.",
    ),
    Row(
        "AUTH-04",
        "SHOULD",
        _PAGE + "Scope Selection Strategy",
        "The challenge names the scopes that are needed.",
    ),
    Row(
        "AUTH-05",
        "MUST",
        _PAGE + "Token Handling",
        "A token that is not valid or has expired is answered with 401.",
    ),
    Row(
        "AUTH-06",
        "MUST",
        _SAFE + "Access Token Privilege Restriction",
        "A token that was issued for somebody else is refused.",
    ),
    Row(
        "AUTH-07", "MUST", _PAGE + "Token Requirements", "The token comes in its header, never in the query."
    ),
    Row(
        "AUTH-08",
        "MUST",
        _PAGE + "Token Requirements",
        "Every HTTP request needs a token, whatever its method, in a session too.",
    ),
    Row(
        "AUTH-09",
        "SHOULD",
        _PAGE + "Runtime Insufficient Scope Errors",
        "A missing scope is answered with 403, `insufficient_scope`, the scopes and the metadata's URL.",
    ),
    Row(
        "AUTH-10",
        "SHOULD",
        _PAGE + "Runtime Insufficient Scope Errors",
        "One challenge names all scopes that the operation needs.",
    ),
    Row(
        "AUTH-11",
        "MUST",
        _PAGE + "Step-Up Authorization Flow",
        "A broader scope counts for the narrower ones that it includes.",
    ),
    Row(
        "AUTH-12",
        "MUST",
        _SAFE + "Access Token Privilege Restriction",
        "The token of a caller is not passed on to services behind the server.",
        author=True,
        why="What a handler sends to others is its author's business.",
    ),
)
