"""Commands about more than one round: surveys, studies, discoveries, quantile searches; and people who join studies."""
