"""What all roles share: messages, envelopes, manifest, signatures, transport, storage, errors, clock."""
