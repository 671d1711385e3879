"""The wire format to clients: errors, the error boundary, results by era."""
