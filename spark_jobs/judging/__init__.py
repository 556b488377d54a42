"""Judging: whether a stage's rows may be published. A judge passes, warns, or refuses to go on (`GateFailed`).

Four kinds of judges look at the rows of a stage: the gate (invariants of the engine, by Great Expectations), the source
file's checks and a team's own suites, drift of the drops' metrics, and overflows. They keep their verdicts in the run's
lease. The run writes them to `quality.results` with its publication, or at once if one of them stops it. The faces are
the functions of `judges`, one for each stage, `checks.verify_checks` and `mart_tests.keep_mart_tests`.
"""
