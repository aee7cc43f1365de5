"""Review the labels of a run in the browser."""
