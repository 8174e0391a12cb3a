"""kubectl-specfleet: what the operator sees and why, and the few words a user can say to it."""
