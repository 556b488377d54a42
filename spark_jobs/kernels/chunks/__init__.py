"""Dense chunks of rows: batching, storing, splitting, merging, compacting, collecting and querying them.

One verb, one module:

    checks, rows     what callers may hand in; one row
    model            chunks: dense columns with min, max and a sorted flag per timeline
    batcher          rows in, chunks out
    columns          the same for a whole Arrow table at once, without a Python loop over rows
    split, merge     one chunk into pieces; a new chunk with one neighbour
    query            what one chunk answers: binary search when sorted, a scan when not
    interval_index   the interval tree;  index: where the chunks of a store are
    write, reads, summary   what a store does and answers
    newest_first     latest-at over chunks that lie elsewhere, read a few at a time
    gc, compaction   plans: what to drop; what to rewrite
    store            the in-memory store
    naive            the slow, obvious twin of batcher and store

Pure: numpy, Arrow and the standard library. No clock, no randomness, no input or output.
"""
