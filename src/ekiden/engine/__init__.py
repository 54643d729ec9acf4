"""The engine without its transports: for servers of others that want ekiden's handlers inside them.

    server = Server("shop", store="sqlite:///shop.db", principal=principal_of)
    engine = Engine(server)
    async with engine.running():
        request = engine.request("tools/call", params, principal="alice")
        outcome = await engine.answer(request, HostStream(request, notify))
        result = engine.result(request, outcome)

- `Engine` builds requests of either era out of wire parameters, answers them, and turns outcomes into results
  as the client's version has them. It also tells what is registered, and how tasks change.
- `HostStream` is the way back to the client while a request runs: notifications, and for clients of 2025
  questions. `Stream` and `AskingStream` are the protocols that it implements.
- `lasting` ends a subscription with the access token that the host has verified.
- `principal_of` goes into `Server(principal=...)`: it is what `engine.request` was told.
- `TokenSealer` can take the place of keys: `Server(keys=...)`.
- `Carrier` registers handlers that another server has defined, and `ask` and `answers_by_hand` answer for
  their own context.

This surface is stable: `ekiden.integrations` uses nothing deeper. Knows: the server. Refuses to know: whose
server it is in.
"""

from ekiden.engine.admission import Lasting, lasting
from ekiden.engine.carrying import Carrier, Matcher, ResumeMode, answers_by_hand, ask
from ekiden.engine.engine import Engine, Kind
from ekiden.engine.requests import principal_of
from ekiden.engine.streams import AskingStream, HostStream, Stream
from ekiden.server.sealing.key_source import Keys
from ekiden.server.sealing.keys import TokenSealer, has_lasting_keys

__all__ = [
    "AskingStream",
    "Carrier",
    "Engine",
    "HostStream",
    "Keys",
    "Kind",
    "Lasting",
    "Matcher",
    "ResumeMode",
    "Stream",
    "TokenSealer",
    "answers_by_hand",
    "ask",
    "has_lasting_keys",
    "lasting",
    "principal_of",
]
