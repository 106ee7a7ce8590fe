"""Measure how good synthesized speech is."""
