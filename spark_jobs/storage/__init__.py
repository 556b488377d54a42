"""The only code that knows tables: their columns, how they are written, and who may write them."""
