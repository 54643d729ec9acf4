"""What all pages have in common: a small ASGI application with routes, forms, templates and live updates.

    site = Site(secure=True)

    @site.get("/calls/{call}")
    async def show(request: WebRequest) -> WebResponse:
        return site.page("call.html", request, call=await find(request.params["call"]))

Read in this order: `headers` (what keeps a page safe in a browser), `messages` (a request and its form, a
response), `static` (files whose name has their fingerprint), `templates`, `events` (fragments that are sent
as they change), `csrf`, `site` (routes and errors), `door` (a token in a link becomes a cookie). Beside
them: `fields` and `filling` (a form made of a JSON schema).

Knows: HTTP and HTML. Refuses to know: MCP.
"""

from ekiden.pages.web.csrf import Csrf
from ekiden.pages.web.door import Door
from ekiden.pages.web.events import Fragment, Gone, Reload, event_stream
from ekiden.pages.web.messages import WebRequest, WebResponse, redirect
from ekiden.pages.web.site import Site

__all__ = [
    "Csrf",
    "Door",
    "Fragment",
    "Gone",
    "Reload",
    "Site",
    "WebRequest",
    "WebResponse",
    "event_stream",
    "redirect",
]
