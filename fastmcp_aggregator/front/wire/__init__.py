"""What crosses the wire to a client: parameters in, results and errors out."""
