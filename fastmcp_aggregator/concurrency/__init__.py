"""How much runs at once, for whom, and for how long: limiters, shares, shared contexts."""
