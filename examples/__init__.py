"""Programs that take part in rounds, to copy from; docs/client-library.md walks through them, and tests run them."""
