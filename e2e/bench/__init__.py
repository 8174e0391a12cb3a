"""What the product is held to, measured: each command here writes one section of docs/benchmarks.md."""
