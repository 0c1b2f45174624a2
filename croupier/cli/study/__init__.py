"""Commands about more than one round: surveys, studies, discoveries; and people who join studies."""
