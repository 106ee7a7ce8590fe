"""Training on several devices and processes."""
