"""What the specification, version 2026-07-28, demands of a server: one row for each demand.

The rows say it in our words; `section` tells where the specification says it. `level` is the key word
used there; "states" marks what a page lays down without one. A row with `author=True` cannot be kept by a
library: it binds whoever writes a server, and `why` says so. Every other row has a test that bears
`@requirement(id)`; `test_table.py` sees to it, in both directions.

So are the demands of the extensions for tasks, SEP-2663, and skills, SEP-2640, and there those of a client
too.

Left out, for they have tables of their own: multi round-trip requests, elicitation, sampling, roots,
the 2025 versions, and whatever else binds clients only.
"""

from .rows import Row
from .rows_authorization import AUTHORIZATION
from .rows_base import BASE
from .rows_features import FEATURES
from .rows_patterns import PATTERNS
from .rows_skills import SKILLS
from .rows_tasks import TASKS
from .rows_transports import TRANSPORTS

__all__ = ["TABLE", "Row"]

ROWS = (*BASE, *TRANSPORTS, *AUTHORIZATION, *PATTERNS, *FEATURES, *TASKS, *SKILLS)

TABLE: dict[str, Row] = {row.id: row for row in ROWS}
