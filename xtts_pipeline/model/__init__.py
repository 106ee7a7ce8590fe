"""The network and its losses: tensors in, tensors out; knows no cache and no file."""
