"""The gateway: a client's calls over HTTPS, for programs and networks that cannot speak gRPC (docs/gateway.md)."""
