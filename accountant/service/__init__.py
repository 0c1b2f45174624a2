"""The accountant as a service: gRPC and the ledger, the only room of the accountant with storage."""
