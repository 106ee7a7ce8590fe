"""The autoregressive decoder: frames from the frames before them, with attention to the text and a stop."""
