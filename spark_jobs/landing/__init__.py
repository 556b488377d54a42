"""Landing: the files of a drop become rows, chunks, duplicates and rejects, each file exactly once."""
