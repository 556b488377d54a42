"""Plot the departure delays of one day, airport by airport, from the sliding windows in silver.

    tidemark run flights --from 2013-03-08 --to 2013-03-09
    python tests/examples/stormy_day.py [--day 2013-03-08] [--out stormy_day.png]

Each point is one sliding window: the mean and the greatest delay of all departures in the hour that ends there. Windows
are set by the departures themselves, so lines bend where something happened, not where a clock struck. On 2013-03-08
snow fell on New York from the morning on.
"""

from __future__ import annotations

import argparse
import datetime as dt
from pathlib import Path

import matplotlib as mpl
import pandas as pd

from spark_jobs.session import open_session

mpl.use("Agg")
from matplotlib import dates, pyplot

HOUR = pd.Timedelta(hours=1)
COLORS = {"EWR": "#c2543b", "JFK": "#3b6ea5", "LGA": "#5b8f3e"}


def read(day: dt.date) -> pd.DataFrame:
    """The windows that end on a day (UTC): origin, window_end, departures, mean_delay, max_delay (minutes)."""
    spark = open_session(app_name="stormy-day")
    try:
        return spark.sql(
            "SELECT origin, window_end, departures, mean_delay, max_delay FROM silver.departure_delays "
            f"WHERE window_end >= TIMESTAMP '{day}' AND window_end < TIMESTAMP '{day + dt.timedelta(days=1)}' "
            "ORDER BY origin, window_end"
        ).toPandas()
    finally:
        spark.stop()


def plot(windows: pd.DataFrame, day: dt.date, out: Path) -> None:
    """Delays above, departures an hour below."""
    figure, (delays, departures) = pyplot.subplots(
        2, 1, figsize=(10, 6), sharex=True, height_ratios=(3, 1), layout="constrained"
    )
    for origin, ended in windows.groupby("origin"):
        color = COLORS.get(str(origin), "#777777")
        own = _with_breaks(ended)
        ends = own["window_end"]
        delays.plot(ends, own["mean_delay"], color=color, label=f"{origin}, mean of the hour")
        delays.plot(ends, own["max_delay"], color=color, linewidth=0.6, alpha=0.6)
        departures.plot(ends, own["departures"], color=color)
    delays.set_ylabel("delay, minutes\n(thin: greatest)")
    delays.set_title(f"Departures from New York in the hour before, {day}", loc="left")
    delays.legend(loc="upper left", frameon=False)
    departures.set_ylabel("departures\nan hour")
    departures.set_xlabel("UTC")
    departures.xaxis.set_major_formatter(dates.DateFormatter("%H:%M"))
    for axis in (delays, departures):
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(out, dpi=120)


def _with_breaks(own: pd.DataFrame) -> pd.DataFrame:
    """An empty row after each window that none follows within its hour: no line where nothing left."""
    quiet = own["window_end"].diff().shift(-1) > HOUR
    breaks = own.loc[quiet, ["origin", "window_end"]].assign(window_end=lambda rows: rows["window_end"] + HOUR)
    return pd.concat([own, breaks]).sort_values("window_end")


def main() -> None:
    """Read the day asked for and write the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--day", type=dt.date.fromisoformat, default=dt.date(2013, 3, 8))
    parser.add_argument("--out", type=Path, default=Path("stormy_day.png"))
    arguments = parser.parse_args()
    windows = read(arguments.day)
    if windows.empty:
        parser.error(f"silver.departure_delays has no window on {arguments.day}; run the pipeline for that day first")
    plot(windows, arguments.day, arguments.out)
    print(arguments.out)


if __name__ == "__main__":
    main()
