"""The layouts in which image data sets are distributed, one module each."""
