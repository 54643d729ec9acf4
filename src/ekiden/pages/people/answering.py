"""The routes of the pages on which people answer: look at a question, answer it, or say no."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol
from urllib.parse import quote

from ekiden.errors import StatusError
from ekiden.pages.people.showing import shown
from ekiden.pages.web.csrf import Csrf
from ekiden.pages.web.filling import Form, FormView, asked_schema
from ekiden.pages.web.messages import WebRequest, WebResponse, redirect
from ekiden.pages.web.site import Site
from ekiden.server.people.people import Kept, People
from ekiden.wire.principal import Principal

__all__ = ["Who", "answering_site"]

_ANYBODY: Final = "whoever has the link"
_GONE: Final = (
    "This link does not open a question. It may have expired, or it is not complete: copy the whole of it."
)
_NOT_YOURS: Final = (
    "This question is for somebody else. If the link was sent to you, do not answer in another name: tell "
    "whoever sent it."
)


class Who(Protocol):
    """What these routes need of `Pages`."""

    origin: str
    path: str
    is_secure: bool
    identify: Callable[[WebRequest], Awaitable[Principal | None]] | None
    may: Callable[[Principal, str], bool]
    sign_in: str | None


def answering_site(people: People, who: Who) -> Site:
    """The ASGI application with these routes."""
    site = Site(secure=who.is_secure, shared={"site_name": people.name})
    routes = _Answering(people, who, site)
    site.get("/{link}")(routes.look)
    site.post("/{link}")(routes.answer)
    return site


class _Answering:
    def __init__(self, people: People, who: Who, site: Site) -> None:
        self._people = people
        self._who = who
        self._site = site
        self._csrf = Csrf(secure=who.is_secure)

    async def look(self, request: WebRequest) -> WebResponse:
        """The page of a question. To look at it changes nothing: programs that preview links may."""
        found = await self._found(request)
        if isinstance(found, WebResponse):
            return found
        kept, _ = found
        if kept.inquiry.state != "open":
            return self._settled(request, kept)
        return self._form(request, kept, _form(kept).blank())

    async def answer(self, request: WebRequest) -> WebResponse:
        """Take an answer, once."""
        found = await self._found(request)
        if isinstance(found, WebResponse):
            return found
        kept, by = found
        self._csrf.check(request, kept.row.id)
        if kept.inquiry.state != "open":
            return self._settled(request, kept)
        given: dict[str, Any] = {"action": "decline"}
        if request.first("action") == "accept":
            filled = _form(kept).read(request.form)
            if not filled.fits:
                return self._form(request, kept, filled.view, status=422)
            given = {"action": "accept"}
            if kept.inquiry.params.get("mode") != "url":
                given["content"] = filled.values
        is_taken = await self._people.answer(kept.row.id, given, by=by, turn=kept.inquiry.turn)
        return redirect(request.root + request.path) if is_taken else self._late(request)

    async def _found(self, request: WebRequest) -> tuple[Kept, str] | WebResponse:
        """The question that a link opens, and who has opened it; a page instead if that may not be."""
        link = request.params["link"]
        person = None
        if self._who.identify is not None and (person := await self._who.identify(request)) is None:
            return self._stranger(request)
        found = await self._people.find(link)
        if found is None:
            raise StatusError(404, _GONE)
        kept, opens = found
        if kept.inquiry.state == "open" and not opens:
            raise StatusError(404, _GONE)
        if person is not None and not self._is_for(kept, person):
            raise StatusError(403, _NOT_YOURS)
        return kept, _ANYBODY if person is None else person.subject

    def _is_for(self, kept: Kept, person: Principal) -> bool:
        """Whether a person may answer. The caller's user is known by issuer and subject, not by client."""
        if kept.inquiry.persons:
            return self._who.may(person, kept.inquiry.person)
        return self._people.is_same_user(kept.inquiry.principal, person)

    def _stranger(self, request: WebRequest) -> WebResponse:
        """Somebody who has not signed in. Nothing of the question is shown."""
        back = f"{self._who.origin}{self._who.path}{request.path}"
        if self._who.sign_in is not None:
            return redirect(self._who.sign_in.replace("{url}", quote(back, safe="")))
        return self._site.page("ask_signed_out.html", request, status=401)

    def _form(self, request: WebRequest, kept: Kept, view: FormView, *, status: int = 200) -> WebResponse:
        code, cookies = self._csrf.issue(request, kept.row.id)
        words = shown(self._people, kept)
        return self._site.page(
            "ask.html", request, status=status, cookies=cookies, asked=words, view=view, form_code=code
        )

    def _settled(self, request: WebRequest, kept: Kept) -> WebResponse:
        """The page of a question that has its answer, or needs none any more. The answer is not shown."""
        inquiry = kept.inquiry
        how = "withdrawn" if inquiry.answer is None else inquiry.answer["action"]
        return self._site.page(
            "ask_done.html", request, how=how, when=inquiry.answered, own=not inquiry.persons
        )

    def _late(self, request: WebRequest) -> WebResponse:
        return self._site.page("ask_done.html", request, status=409, how="late", when=None, own=False)


def _form(kept: Kept) -> Form:
    """The form of a question. A page of somebody else that is only to be opened has no fields."""
    schema = kept.inquiry.params.get("requestedSchema")
    return Form(asked_schema(schema) if schema is not None else {"type": "object", "properties": {}})
