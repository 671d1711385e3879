"""Concurrency: FIFO and fair limiters (semaphores), a drain counter, a reference-counted context."""
