"""Decode sound files, compute log-mel frames, and save waves. No TensorFlow."""
