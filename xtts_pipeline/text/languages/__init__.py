"""Numbers, signs and abbreviations in words: one module per language with rules of its own."""
