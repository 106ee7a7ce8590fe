"""A trained run as files for other programs: a voice folder, a SavedModel, ONNX."""
