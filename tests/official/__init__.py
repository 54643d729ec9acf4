"""Every message that ekiden sends in a test is held to the official types of its protocol version.

`types` says what a message must be, `sent` watches the places where ekiden sends. What is wrong fails the
test that sent it. A test that makes ekiden send something wrong on purpose takes `wrong_messages`.
Only messages of the process that runs the tests are seen, not those of servers and commands that it starts.
"""
