"""Revision identity, and (state, verdict, capacity, now) -> next state. Pure."""
