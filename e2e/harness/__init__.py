"""Real Kubernetes for tests: a control plane as any user, a whole one-node cluster as root; no Docker, no registry."""
