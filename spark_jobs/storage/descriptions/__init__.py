"""Descriptions of the lake's tables: columns, types, partitions and comments, and the SQL made of them."""
