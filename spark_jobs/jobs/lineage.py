"""The datasets that each stage reads and writes, for OpenLineage.

A dataset is named by the place of its files, as in Spark's own integration. Neither values of rows nor passwords are
part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from spark_jobs.config import Settings
from spark_jobs.definitions.definition import definitions
from spark_jobs.sources import Source
from spark_jobs.storage.delta.places import as_root, table_uri
from spark_jobs.storage.descriptions.chain_tables import CHAINS
from spark_jobs.storage.descriptions.schema import Table
from spark_jobs.storage.descriptions.tables import DUPLICATES, FILES, LATE, QUARANTINE, STATE, chunks, updates
from spark_jobs.storage.names.shown_marts import MARTS, STAGING, shown_marts

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset
    from openlineage.client.facet_v2 import OutputDatasetFacet


def stage_lineage(
    settings: Settings, source: Source, stage: str, summary: Mapping[str, Any] | None = None
) -> OperatorLineage:
    """The datasets of a stage, for Airflow's provider of OpenLineage.

    `summary` is the summary that the stage returned; None if it did not end.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    read, written = _tables(settings, source, stage)
    inputs = [_landing_dataset(settings, source)] if stage == "land" else [_of_table(settings, table) for table in read]
    outputs = [_of_table(settings, table) for table in written]
    if stage == "land" and summary is not None:
        rows = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=summary.get("rows"), fileCount=summary.get("files")
        )
        first = outputs[0]
        facets: dict[str, OutputDatasetFacet] = {"outputStatistics": rows}
        outputs[0] = OutputDataset(first.namespace, first.name, facets=first.facets, outputFacets=facets)
    return OperatorLineage(inputs=inputs, outputs=outputs)


def _tables(settings: Settings, source: Source, stage: str) -> tuple[list[Table], list[Table]]:
    """The tables that a stage reads, and those that it writes."""
    windows = [each.table() for each in definitions(source)]
    state = [] if source.state is None else [STATE, *([CHAINS] if source.keeps_chains else [])]
    # the tables of the source as its file is now, without those of environments
    silver = [*windows, LATE] if windows else []
    marts = [Table(STAGING, name, "", ()) for name in sorted(shown_marts(settings.home, source.name).versions)]
    stages: dict[str, tuple[list[Table], list[Table]]] = {
        "land": ([], [chunks(source), QUARANTINE, DUPLICATES, FILES]),
        "seal": ([chunks(source)], [updates(source)]),
        "window": ([updates(source)], silver),
        "compact": ([updates(source)], [*state, updates(source)]),
        "publish": ([*windows, *state[:1]], marts),
    }
    return stages[stage]


def _landing_dataset(settings: Settings, source: Source) -> Dataset:
    """The dataset of the source's landed files: the folder below which all of them are."""
    from openlineage.client.event_v2 import Dataset

    folder = source.path.partition("{")[0].rpartition("/")[0]
    root = str(settings.landing).rstrip("/")
    return Dataset(*dataset_name(f"{root}/{folder}" if folder else root))


def _of_table(settings: Settings, table: Table) -> Dataset:
    from openlineage.client.event_v2 import Dataset
    from openlineage.client.facet_v2 import schema_dataset, symlinks_dataset

    readable_name = f"{MARTS}.{table.table}" if table.database == STAGING else table.qualified
    called = symlinks_dataset.Identifier(namespace=settings.lineage_namespace, name=readable_name, type="TABLE")
    facets: dict[str, Any] = {"symlinks": symlinks_dataset.SymlinksDatasetFacet(identifiers=[called])}
    if table.columns:
        fields = [
            schema_dataset.SchemaDatasetFacetFields(name=c.name, type=c.type, description=c.comment)
            for c in table.columns
        ]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=fields)
    lake = str(settings.lake) if settings.lake_path is None else str(settings.lake_path)
    return Dataset(*dataset_name(table_uri(lake, table.database, table.table)), facets=facets)


def dataset_name(place: str) -> tuple[str, str]:
    """The namespace and name that OpenLineage gives a folder: `file` and its path, or `s3://bucket` and the key."""
    if "://" not in place:
        return "file", place.rstrip("/") or "/"
    parts = urlsplit(as_root(place))
    # a URI may contain a user and a password
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}", parts.path.strip("/") or "/"
