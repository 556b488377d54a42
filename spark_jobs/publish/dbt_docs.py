"""dbt's own documentation of the models, as one HTML file that needs neither dbt nor the internet."""

from __future__ import annotations

import time
from pathlib import Path

from spark_jobs.config import Settings
from spark_jobs.errors import TidemarkError
from spark_jobs.publish.marts import dbt_environment, dbt_options, run_dbt
from spark_jobs.publish.project import laid_out
from spark_jobs.storage.names.shown_marts import dbt_docs_file


class DocsFailed(TidemarkError):
    """dbt could not write its documentation. Facts: `reason`."""

    code = "dbt_docs_failed"
    reason: str


def write_dbt_docs(settings: Settings) -> tuple[Path, float]:
    """Write the documentation of the models and tests as their files are now.

    The lake server is not asked: the columns are those that the models declare.

    Returns the file, and the seconds that writing it took.

    Raises:
        DocsFailed: dbt refuses the project.
        ConfigurationError: `TIDEMARK_DBT` names no folder.
    """
    start_s = time.monotonic()
    project, file = laid_out(settings), dbt_docs_file(settings.home)
    # in a folder of its own: the portal reads the files that the last build left
    options = dbt_options(settings, project, target=file.parent)
    with dbt_environment(settings, 0, {}, {}, rows=0):
        for command in (["parse"], ["docs", "generate", "--static", "--empty-catalog", "--no-compile"]):
            outcome = run_dbt([*command, *options])
            if not outcome.success:
                reason = " ".join(str(outcome.exception or "no reason given").split())
                raise DocsFailed(
                    expected="dbt to describe its project",
                    found=reason,
                    consequence="the documentation is as it was",
                    next_step=f"correct the models; they are laid out in {project.folder}",
                    reason=reason,
                )
    return file, time.monotonic() - start_s
