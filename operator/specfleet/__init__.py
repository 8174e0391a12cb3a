"""specfleet: a Kubernetes operator for vLLM fleets with speculative decoding on AMD Instinct GPUs."""

__version__ = "0.1.0"
