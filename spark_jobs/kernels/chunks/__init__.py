"""Dense chunks of rows: batching, storing, splitting, merging, compacting, collecting and querying them.

Each module has one task:

    checks, rows     checks of arguments; a row
    model            chunks: dense columns with min, max and a sorted flag per timeline
    batcher          rows in, chunks out
    columns          the batcher for a whole Arrow table at once, without a Python loop over rows
    split, merge     splitting a chunk into pieces; merging a new chunk with a neighbour
    query            queries of a single chunk: binary search if it is sorted, otherwise a scan
    interval_index   the interval tree;  index: the catalog of a store's chunks
    write, reads, summary   changes, queries and listings of a store
    newest_first     latest-at over chunks that are stored elsewhere and read a few at a time
    gc, compaction   choosing the chunks to drop; rewriting chunks into fewer
    store            the in-memory store
    naive            the slow, obvious twin of batcher and store

Pure: numpy, Arrow and the standard library. No clock, no randomness, no input or output.
"""
