"""Job `prepare`: write the sample data as daily drops, as if it had arrived.

    python -m spark_jobs.jobs.prepare --landing-root DIR [--from 2013-01-01] [--to 2013-01-07] [--source flights]

It prints one line of JSON with the drops written of each source. Exit codes: 0 ok, 1 the sample is missing, 2 wrong
usage. Needs no Spark.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from collections.abc import Sequence

from spark_jobs.config import load_settings
from spark_jobs.errors import TidemarkError
from spark_jobs.sample import SAMPLE_SOURCES, prepare_sample


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job with `arguments` (default: those of the process); returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        load_settings()  # a folder of secrets may have the keys of the bucket
        drops = prepare_sample(
            options.landing_root,
            first=options.first,
            last=options.last,
            sources=tuple(options.source or SAMPLE_SOURCES),
        )
    except TidemarkError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    totals = {
        source: {
            "drops": sum(drop.source == source for drop in drops),
            "written": sum(drop.source == source and drop.written for drop in drops),
            "rows": sum(drop.rows for drop in drops if drop.source == source),
        }
        for source in sorted({drop.source for drop in drops})
    }
    sys.stdout.write(f"{json.dumps(totals)}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="prepare", description="Write the sample data as daily drops.")
    parser.add_argument(
        "--landing-root", required=True, help="where sources land: a directory, or a URI such as s3a://bucket/landing"
    )
    parser.add_argument("--from", dest="first", type=dt.date.fromisoformat, help="the first day (default: all)")
    parser.add_argument("--to", dest="last", type=dt.date.fromisoformat, help="the last day, included (default: all)")
    parser.add_argument("--source", action="append", choices=SAMPLE_SOURCES, help="one source only; may be repeated")
    return parser


if __name__ == "__main__":
    sys.exit(main())
