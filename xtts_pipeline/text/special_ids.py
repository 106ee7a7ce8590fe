"""Token ids with a fixed meaning; symbols start at FIRST_SYMBOL_ID."""

PAD_ID, BEGIN_ID, END_ID = 0, 1, 2
FIRST_SYMBOL_ID = 3
