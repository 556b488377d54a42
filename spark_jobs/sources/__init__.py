"""Sources: one YAML file describes where files land, what a row means, and which windows and state are computed.

`load_source` reads and checks a file, and reports all its problems at once, before anything runs. Nothing here imports
Spark or Airflow, because parsing a DAG file reads sources.
"""

from spark_jobs.sources.bounds import as_typed
from spark_jobs.sources.calls import AggregateCall, TriggerCall
from spark_jobs.sources.check_base import ROWS, STATE, Judging, columns_read
from spark_jobs.sources.columns import DeclaredColumn, LandingOptions
from spark_jobs.sources.data_checks import (
    LATE_BY,
    RATE_CHANGE,
    Between,
    DataCheck,
    Freshness,
    In,
    LatenessCheck,
    Matches,
    NotNull,
    NullShare,
    OfExpectation,
    OfSql,
    OfType,
    RateCheck,
    RowCount,
    Unique,
    sql_column,
)
from spark_jobs.sources.drops import RowIdOverflowError, Schedule, drop_of, first_row_id, line_of, row_id
from spark_jobs.sources.environments import (
    Environment,
    create_environment,
    drop_environment,
    environments,
    find_environment,
)
from spark_jobs.sources.folder import SourceFolder, find_source, read_sources
from spark_jobs.sources.load import load_source, parse_source
from spark_jobs.sources.problems import Problem, SourceFileError, did_you_mean, name_problem, unknown_name
from spark_jobs.sources.source import Dag, Source
from spark_jobs.sources.state import CompactionRules, DeleteWhen, Operations, State
from spark_jobs.sources.windows import (
    AdaptiveWindow,
    CalendarWindow,
    HoppingWindow,
    Late,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    Window,
)

__all__ = [
    "LATE_BY",
    "RATE_CHANGE",
    "ROWS",
    "STATE",
    "AdaptiveWindow",
    "AggregateCall",
    "Between",
    "CalendarWindow",
    "CompactionRules",
    "Dag",
    "DataCheck",
    "DeclaredColumn",
    "DeleteWhen",
    "Environment",
    "Freshness",
    "HoppingWindow",
    "In",
    "Judging",
    "LandingOptions",
    "Late",
    "LatenessCheck",
    "Matches",
    "NotNull",
    "NullShare",
    "OfExpectation",
    "OfSql",
    "OfType",
    "Operations",
    "Problem",
    "RateCheck",
    "RowCount",
    "RowIdOverflowError",
    "Schedule",
    "SessionWindow",
    "SlidingWindow",
    "Source",
    "SourceFileError",
    "SourceFolder",
    "State",
    "TriggerCall",
    "TumblingWindow",
    "Unique",
    "Window",
    "as_typed",
    "columns_read",
    "create_environment",
    "did_you_mean",
    "drop_environment",
    "drop_of",
    "environments",
    "find_environment",
    "find_source",
    "first_row_id",
    "line_of",
    "load_source",
    "name_problem",
    "parse_source",
    "read_sources",
    "row_id",
    "sql_column",
    "unknown_name",
]
