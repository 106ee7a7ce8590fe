"""HTML pages that show results to a person."""
