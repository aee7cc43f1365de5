"""The shared HTML page of every report."""
