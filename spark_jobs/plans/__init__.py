"""Plans: a run is rehearsed over a lake that keeps its writes apart, and the differences of all tables are counted.

The faces are `plan.plan_run`, `plan.plan_replay` and `replay.replay_of`, the run that reads quarantined files again.
"""
