"""The tests need no store that outlives them."""

import os

os.environ.setdefault("EKIDEN_STORE", "memory:")
