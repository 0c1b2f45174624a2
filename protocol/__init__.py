"""What all roles share, none of which runs: messages, envelopes, manifest, mechanisms, signatures, batches, errors."""
