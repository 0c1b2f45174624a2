"""What clients and servers share on the network: TLS, limits, the guard before every call, repeated calls, HTTPS."""
