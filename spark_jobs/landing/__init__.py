"""Landing: it makes rows, chunks, duplicates and rejects of the files of a drop, each file exactly once."""
