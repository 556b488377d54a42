"""The delta algebra of gold: chains of deltas of many entities, folded into states that a replay gives bit for bit."""
