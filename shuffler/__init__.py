"""A hop of the chain: admits submissions (hop 1), permutes both lanes, delivers them to the next role."""
