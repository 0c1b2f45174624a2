"""`croupier console`: a web page that shows a deployment and its rounds, and on which one may answer a round oneself.

Pages are made on the server from the documents that the commands print with `--json`; a script of the same origin keeps
them up to date, and they can be read without it. Nothing is fetched from anywhere else, and no cookie is set.
"""
