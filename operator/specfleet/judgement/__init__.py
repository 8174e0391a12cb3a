"""Two arms' evidence becomes a verdict with its interval; guards. Pure."""
