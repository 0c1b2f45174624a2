"""The wire, and nothing that runs: messages, envelopes, mechanisms, questions, signatures, tickets, codes and texts."""
