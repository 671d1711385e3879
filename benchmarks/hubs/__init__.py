"""What one hub for all clients of a machine costs and bears: `python -m benchmarks.hubs.NAME`."""
