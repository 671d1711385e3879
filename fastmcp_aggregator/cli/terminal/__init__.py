"""The terminal and the process: console, questions, logs, signals, exit codes."""
