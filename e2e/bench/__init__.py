"""What the product is held to, measured: each command here writes one section of docs/benchmarks.md."""

import sys
from pathlib import Path

# The clock, the cluster, the fleets and the puppet pods that the tests' stories are played on.
sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "support"))
