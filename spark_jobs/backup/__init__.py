"""Backups: consistent sets of a lake and its source files, which are made, verified and restored.

A Delta table is its log and the files that the log names, and neither is ever written over. So a set is a list of
files, taken from the tables' versions at one instant. A later set copies only files that the earlier ones lack.
"""

from spark_jobs.backup.making import Backup, back_up
from spark_jobs.backup.restoring import Restored, restore
from spark_jobs.backup.sets import BackupDamaged, BackupSet
from spark_jobs.backup.verifying import Verified, verify

__all__ = ["Backup", "BackupDamaged", "BackupSet", "Restored", "Verified", "back_up", "restore", "verify"]
