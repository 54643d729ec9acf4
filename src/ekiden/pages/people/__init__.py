"""The pages on which people answer what no client can ask.

Read in this order: `notifiers` (how people are told), `showing` (a question as its page shows it),
`answering` (the routes: look, answer, decline), `pages` (`Pages`, what authors write).

Knows: questions to people, and forms. Refuses to know: calls, rounds and tasks.
"""
