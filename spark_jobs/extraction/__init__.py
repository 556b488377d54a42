"""Extraction: what a drop's rows are read from, where no files bring them, becomes files of the landing directory.

Tables come through JDBC, topics from Kafka, by Spark's own readers. A drop is read once. Its rows are written as lines
of NDJSON under hidden names; one commit to `bronze.extracts` says which of them count and what was read; then they get
the names under which they land as any file does. So row ids, quarantine, differences and proofs are those of files.
"""
