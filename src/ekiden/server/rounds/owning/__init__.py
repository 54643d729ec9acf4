"""Rounds that run once: who owns a round, for how long, and what those get who repeat it meanwhile.

Read in this order: `claim` (one round, as its leg uses it), `once` (what all rounds of a process share),
`lease` (how a claim is kept), `contenders` (repeats that wait, and how a dead owner is noticed), `enduring`
(work that is not given up), `kept_outcomes` (how a round's end is remembered). Which claim wins is decided in
`ekiden.rounds.ledger`.
"""
