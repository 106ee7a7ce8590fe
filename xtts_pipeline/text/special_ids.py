"""Token ids with a fixed meaning in every cache; symbols follow from FIRST_SYMBOL_ID on."""

PAD_ID, BEGIN_ID, END_ID = 0, 1, 2
FIRST_SYMBOL_ID = 3
