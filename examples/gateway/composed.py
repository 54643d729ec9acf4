"""One server made of several: one of this program, one that it starts."""

import sys
from pathlib import Path

from ekiden import Server
from ekiden.gateway import proxy

billing = Server("billing")


@billing.tool
def balance(customer: str) -> str:
    """What a customer owes."""
    return f"{customer} owes nothing."


notes = proxy([sys.executable, str(Path(__file__).with_name("notes.py"))], name="notes")

shop = Server("shop")
shop.mount(billing, prefix="billing")
shop.mount(notes, prefix="notes")
