"""The pages that show what happened: Calls and Tasks, for `ekiden dev` and `ekiden ui`.

    desk = Desk(stories=server.stories, tasks=store.tasks, access=Everybody())
    desk.install(site)

Read in this order: `reading` (how much of a story is shown), `story` (what happened, worked out of events),
`masking` (what a viewer may see), `copying` (a call as a test), `access` (who looks, and what that person may
do), `actions` (cancel, wake, answer, run again, each with a line in the audit log), `feed` (what changed),
`lists`, `tasks` (the page of one task), `desk` (all pages together).

Knows: the public contract of stores, stories and journals. Refuses to know: servers, and how a call is run.
"""

from ekiden.pages.desk.access import Access, Everybody, Viewer
from ekiden.pages.desk.desk import Desk

__all__ = ["Access", "Desk", "Everybody", "Viewer"]
