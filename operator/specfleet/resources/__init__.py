"""One builder for each owned object; AMD and vLLM knowledge as data. Pure."""
