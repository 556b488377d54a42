"""The correction buffer: chains, the bucket chain, and the buffer made of them."""
