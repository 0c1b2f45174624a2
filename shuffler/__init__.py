"""A hop of the chain: admits submissions (hop 1), adds fake reports, permutes both lanes, and delivers them."""
