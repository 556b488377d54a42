"""Extraction: if no files bring a drop's rows, they are read from their origin into files of the landing directory.

Tables come through JDBC, topics from Kafka, by Spark's own readers. A drop is read once. Its rows are written as lines
of NDJSON under hidden names. One commit to `bronze.extracts` then lists the files that count and the range that was
read. After it, the files get the names under which they land as any file does. So row ids, quarantine, differences and
proofs are those of files.
"""
