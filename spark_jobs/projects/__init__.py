"""Examples that ship with Tidemark, and projects that begin as one of them."""
