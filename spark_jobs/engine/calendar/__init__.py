"""The calendar: local dates and midnights of a time zone, and the drops of a source by day or month."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.engine.calendar.drops import DAYS, MONTHS, Drops
    from spark_jobs.engine.calendar.midnights import local_date, midnight
else:
    from spark_jobs.engine.faces import lazy_names

    __getattr__ = lazy_names(__name__)

__all__ = ["DAYS", "MONTHS", "Drops", "local_date", "midnight"]
