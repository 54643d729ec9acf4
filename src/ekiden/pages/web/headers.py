"""The headers that every page has, its Content-Security-Policy among them, and cookies."""

from typing import Final

__all__ = ["POLICY", "SAFE", "cookie"]

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "media-src 'self'",
        "font-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)
"""No inline script, no inline style (also none in `style=` attributes), nothing from elsewhere, no frames."""

SAFE: Final[dict[str, str]] = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # The address of a page may be a secret. (With `no-referrer`, a browser posts a form with `Origin: null`.)
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
    "x-robots-tag": "noindex, nofollow",
    "cache-control": "no-store",
}
"""What a response has unless it says otherwise."""


def cookie(
    name: str,
    value: str,
    *,
    secure: bool,
    same_site: str = "Strict",
    max_age: int | None = None,
) -> tuple[str, str]:
    """A `Set-Cookie` header for all paths of this host; scripts do not see it."""
    parts = [f"{name}={value}", "Path=/", "HttpOnly", f"SameSite={same_site}"]
    if secure:
        parts.append("Secure")
    if max_age is not None:
        parts.append(f"Max-Age={max_age}")
    return "set-cookie", "; ".join(parts)
