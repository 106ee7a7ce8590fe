"""The demo corpus: sentences spoken by espeak-ng."""
