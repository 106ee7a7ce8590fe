"""The command line: one module a command, each with its options, its call and its report."""
