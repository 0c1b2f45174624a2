"""A second client, as docs/another-language.md describes one, and the golden vectors that it makes.

It shares no code with `client/` or the rest of `protocol/`: of ours it imports the generated messages only. It shows
that the page says enough, and it is an oracle for our own client.
"""
