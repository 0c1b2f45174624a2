"""The analyzer: estimates from the shuffled reports and the public multiset of budgets, published once and signed."""
