"""The adapters on Spark: windows, chunks and checkpoints of DataFrames and Delta tables."""
