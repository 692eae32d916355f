"""What differential privacy guarantees against reconstruction, in float64 on the host, rounded upward."""
