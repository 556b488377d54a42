"""What gates measure: per row, or per thing that several rows tell of, how much it adds to each measure.

A function takes an Arrow table and gives per measure what each of its rows adds. So what is summed can also be shown:
an example of a fault is a row that adds to its measure. Times are timestamps of microseconds in UTC.
"""
