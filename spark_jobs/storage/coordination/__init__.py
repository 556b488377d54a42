"""Who may write, and what counts: leases, turns, publications, and the notes beside the lake."""
