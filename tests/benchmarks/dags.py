"""What Airflow pays each time that it parses the DAGs: processor seconds of a fresh process, of the imports and of the
source files.

`python tests/benchmarks/dags.py [--sources N]` parses the shipped source files and N copies of one of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.installations import CHECKOUT

AIM_S = 2.0
"""Of the shipped sources, on a quiet machine."""
AIM_MANY_S, AIM_EACH_S = 10.0, 1.0
"""Of a hundred source files, and of each one of them."""

PARSE = """
import json, runpy, sys, time
sys.path.insert(0, sys.argv[1])
begun = time.process_time()
import _factory
imported = time.process_time()
runpy.run_path(sys.argv[2])
print(json.dumps({"imports": imported - begun, "sources": time.process_time() - imported}))
"""


def parse(sources: Path, home: Path) -> dict[str, float]:
    """Processor seconds of parsing `dags/sources.py` with these source files."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("TIDEMARK_", "AIRFLOW"))}
    environment |= {"TIDEMARK_SOURCES": str(sources), "AIRFLOW_HOME": str(home), "PYTHONPATH": str(CHECKOUT)}
    dags = CHECKOUT / "dags"
    command = [sys.executable, "-c", PARSE, str(dags), str(dags / "sources.py")]
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sources", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sources, home = Path(folder) / "sources", Path(folder) / "home"
        shutil.copytree(CHECKOUT / "dags" / "sources", sources)
        home.mkdir()
        parse(sources, home)  # Airflow writes its configuration once
        shipped = parse(sources, home)
        print(
            f"the shipped sources: {sum(shipped.values()):.2f} s (aim {AIM_S} s), {shipped['imports']:.2f} s of imports"
        )
        text = (sources / "weather.yml").read_text()
        for number in range(options.sources):
            (sources / f"w{number}.yml").write_text(text.replace("source: weather", f"source: w{number}"))
        many = parse(sources, home)
        each = (many["sources"] - shipped["sources"]) / options.sources
        print(
            f"{options.sources} more: {sum(many.values()):.2f} s (aim {AIM_MANY_S:.0f} s for 100),"
            f" {1000 * each:.1f} ms for each (aim {1000 * AIM_EACH_S:.0f} ms); load {os.getloadavg()[0]:.1f}"
        )


if __name__ == "__main__":
    main()
