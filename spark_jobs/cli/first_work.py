"""The first work of a fresh lake server: the names that its catalog has lost are made anew, and the server is warmed.

If the folder of an embedded catalog is removed, the running server keeps the catalog in memory. The next server has
none of its names, whatever started it. Readers who connect wait until it has them. The supervisor runs `python -m
spark_jobs.cli.first_work`.
"""

from __future__ import annotations

import sys
import time
import traceback
from typing import TYPE_CHECKING

from spark_jobs.config import Settings, load_settings
from spark_jobs.failures import explain
from spark_jobs.server.first_work_part import admit_readers, write_mended
from spark_jobs.server.health import connect_health
from spark_jobs.server.warm import warm
from spark_jobs.session import is_lost_server, open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_S = 0.5


def main() -> int:
    """Wait for the server that was started with this process, and do its first work."""
    settings = load_settings()
    # this waits as long as it takes: the supervisor ends this process together with its server
    while not connect_health(settings).ok:
        time.sleep(_POLL_S)
    spark = open_session(settings.model_copy(update={"spark": "connect"}), "tidemark-first-work")
    try:
        sentences = _make_names_anew(settings, spark)
        admit_readers(settings)
        write_mended(settings, sentences)
        warm(settings, spark)
    except Exception as error:
        traceback.print_exc()
        # `up` repeats the last line
        sys.stderr.write(f"{explain(error, settings).sentence()}\n")
        return 1
    finally:
        spark.stop()
    return 0


def _make_names_anew(settings: Settings, spark: SparkSession) -> list[str]:
    """Mend the names that the catalog lacks; returns a sentence for each finding, none if it has all names."""
    from spark_jobs.audit.repair import lacks_names, repair

    try:
        if not lacks_names(settings, spark):
            return []
        return [f"{finding.what}: {finding.found}" for finding in repair(settings, spark)]
    except Exception as error:  # a damaged lake is served, too: `doctor` looks at it, `restore` mends it
        if is_lost_server(error):
            raise  # the first work of the next server lets readers in
        traceback.print_exc()
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        return [f"names: not made anew: {reason}; `tidemark doctor` looks for the cause"]


if __name__ == "__main__":
    sys.exit(main())
