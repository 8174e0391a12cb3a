"""Fixtures of every test, and how properties are tried: the same cases each time, and a busy machine is no failure."""

from hypothesis import settings

from apiserver import control_plane as control_plane

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
