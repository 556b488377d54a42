"""Java for Spark: the search for it, the jars beside Spark's own, Tidemark's Scala code, and the archive of classes."""
