"""How people are told that they are asked: in the log, by a webhook, by mail. Any async function will do."""

import asyncio
import hashlib
import hmac
import logging
import smtplib
import ssl
from datetime import UTC, datetime
from email.message import EmailMessage
from typing import Final

import httpx2
import msgspec

from ekiden.errors import UsageError
from ekiden.server.people.port import Notice
from ekiden.wire.json import encode
from ekiden.wire.printable import harmless, one_line

__all__ = ["MailNotifier", "WebhookNotifier", "to_log"]

_log = logging.getLogger(__name__)

SIGNATURE: Final = "x-ekiden-signature"


async def to_log(notice: Notice) -> None:
    """Write the link to the log: for development. Whoever reads the log can open it."""
    _log.warning("%s is asked by %s: %s", notice.person, notice.server, notice.link)


class WebhookNotifier:
    """Posts each notice as JSON to a URL of yours, which reaches the person as you like.

    With a `secret`, the header `x-ekiden-signature` has the HMAC-SHA256 of the body, in hex. A status other
    than 2xx is a failure: the notice is sent again later.
    """

    def __init__(self, url: str, *, secret: str | bytes | None = None, seconds: float = 10.0) -> None:
        self._url = url
        self._secret = secret.encode() if isinstance(secret, str) else secret
        self._seconds = seconds

    async def __call__(self, notice: Notice) -> None:
        """Send it."""
        body = encode(msgspec.to_builtins(notice))
        headers = {"content-type": "application/json"}
        if self._secret is not None:
            headers[SIGNATURE] = hmac.new(self._secret, body, hashlib.sha256).hexdigest()
        # What fails is logged: without the URL, by which others could post.
        try:
            async with httpx2.AsyncClient(timeout=self._seconds) as client:
                status = (await client.post(self._url, content=body, headers=headers)).status_code
        except httpx2.HTTPError as error:
            raise OSError(f"the webhook could not be called: {type(error).__name__}") from None
        if not 200 <= status < 300:
            raise OSError(f"the webhook answered with HTTP status {status}")


class MailNotifier:
    """Sends each notice by SMTP to the person, whose name must be an address.

    The connection is encrypted (`starttls`), unless `encrypted` is False: for a server on the same machine.
    """

    def __init__(
        self,
        host: str,
        port: int = 587,
        *,
        sender: str,
        user: str | None = None,
        password: str | None = None,
        encrypted: bool = True,
        seconds: float = 20.0,
    ) -> None:
        self._host, self._port = host, port
        self._sender = sender
        self._user, self._password = user, password
        self._encrypted = encrypted
        self._seconds = seconds

    async def __call__(self, notice: Notice) -> None:
        """Send it, in a thread."""
        await asyncio.to_thread(self._send, self.message(notice))

    def message(self, notice: Notice) -> EmailMessage:
        """The mail. What the server asks is text in it, and cannot add a header; it goes to one address."""
        mail = EmailMessage()
        again = "Reminder: " if notice.kind == "reminded" else ""
        mail["From"], mail["To"] = self._sender, one_line(notice.person)
        if len(mail["To"].addresses) != 1:  # Part of the name may come from a client.
            raise UsageError(f"{one_line(notice.person)!r} must be the address of one person")
        mail["Subject"] = f"{again}{one_line(notice.server)} asks you something"
        until = ""
        if notice.until is not None:
            moment = datetime.fromtimestamp(notice.until, UTC)
            until = f"\nPlease answer before {moment:%d %b %Y, %H:%M} UTC.\n"
        mail.set_content(
            f"{one_line(notice.server)} asks, for {one_line(notice.target)}:\n\n"
            f"{harmless(notice.message)}\n\n"
            f"Answer here:\n{notice.link}\n{until}\nThe link is for you alone. Do not pass it on.\n"
        )
        return mail

    def _send(self, mail: EmailMessage) -> None:
        with smtplib.SMTP(self._host, self._port, timeout=self._seconds) as server:
            if self._encrypted:
                server.starttls(context=ssl.create_default_context())
            if self._user is not None:
                server.login(self._user, self._password or "")
            server.send_message(mail)
