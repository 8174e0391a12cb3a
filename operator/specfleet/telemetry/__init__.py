"""A vLLM metrics page becomes samples, windows, and acceptance, tokens per step and step time. Pure."""
