"""Gold's delta algebra: chains of deltas of many entities, folded into states, bit-equal to a replay one by one."""
