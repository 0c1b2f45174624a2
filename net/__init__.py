"""What clients and servers share on the network: repeated calls, calls over HTTPS, the size of a message."""
