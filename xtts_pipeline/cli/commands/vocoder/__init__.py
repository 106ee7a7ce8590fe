"""The commands about trained vocoders."""
