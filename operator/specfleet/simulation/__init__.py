"""A truth model of a vLLM server with speculative decoding: behind the simulated server and the benchmarks."""
