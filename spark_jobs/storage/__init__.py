"""The only package that describes the lake's tables: their columns, how they are written, and who may write them."""
