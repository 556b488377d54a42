"""The measures of the gates: the amount that each row, or each thing that several rows describe, adds to each measure.

A function takes an Arrow table and returns, per measure, the amount that each row adds. So the rows behind a sum can
be shown as well: an example of a fault is a row that adds to its measure. Times are timestamps in UTC, in microseconds.
"""
