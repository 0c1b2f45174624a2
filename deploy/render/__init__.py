"""The files that deploy croupier, all made from one description of hosts, roles, ports and limits (`layout`)."""
