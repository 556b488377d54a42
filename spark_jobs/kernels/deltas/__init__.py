"""The delta algebra of gold: chains of deltas of many entities, folded into states bit-equal to those of a replay."""
