"""Verify a cache against its manifest and its corpus."""
