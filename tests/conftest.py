"""Fixtures of every test."""

from apiserver import control_plane as control_plane
