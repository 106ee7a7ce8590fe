"""One module a command: arguments in, files and a report out; no command holds an algorithm of its own."""
