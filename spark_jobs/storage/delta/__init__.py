"""Delta's mechanics: tables by their handles, their logs, files, checksums and commits."""
