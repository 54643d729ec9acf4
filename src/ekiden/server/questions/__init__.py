"""What a handler can ask, and how its questions and values are written in the protocol.

Read in this order: `forms` (what may be asked of a user), `questions` (a page, the client's model, its
roots), `input_required` (a handler that returns its questions itself), `content` (values as the protocol's
content) with `media` (pictures, sounds and files).
"""
