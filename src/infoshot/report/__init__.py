"""The HTML page that all reports share."""
