"""The verbs every algorithm shares, each formula once."""
