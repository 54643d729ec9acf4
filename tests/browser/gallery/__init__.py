"""Pictures of every page at three widths, light and dark: `python -m tests.browser.gallery`.

Read in this order: `harsh` (a server whose words are long, wide, of another direction, or many), `camera`
(how a picture is taken), `asking`, `trying`, `operating` and `reading` (what is on the pictures).
"""
